"""Calls whose form is the target's and whose values are the effect's: what a handler plans is what people read on the card."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from deedbox.connectors.http import HttpSender, Prepared, json_bytes
from deedbox.connectors.settings import HttpTargetConfig
from deedbox.connectors.targets import check_path
from deedbox.connectors.template import HttpTemplate as Template
from deedbox.connectors.template import Places, filled_headers
from deedbox.extend.connector import EffectOrder

_NOBODY = "0" * 8  # stands for the ids that a plan does not have yet


class HttpValues(BaseModel):
    """The values of one call, under the names that the target's template gives them."""

    model_config = ConfigDict(extra="allow", frozen=True)

    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]


class HttpTemplate(HttpSender):
    """Makes calls as the `call` of an HTTP target says; a payload has values, and no method, path, header or host.

    Where the target is an `upsert_key` one, the effect's id is the thing's own name at the provider: sent again it is the
    same thing, and asking for it by that name is conclusive.
    """

    payload_model: type[BaseModel] = HttpValues

    def __init__(self, name: str = "http_template") -> None:
        """`name` is what `ctx.effect` calls it."""
        super().__init__(name)

    def fits(self, config: HttpTargetConfig) -> bool:
        """Whether the target has a template."""
        return config.call is not None

    def check_plan(self, target: str, payload: Mapping[str, Any]) -> None:
        """Raise ValueError for a target without a template, or a payload that lacks a value or has one that cannot be sent."""
        config = self._config(target)
        places = Places(payload, effect_id=_NOBODY, job_id=_NOBODY, tenant=_NOBODY, slot=_NOBODY)
        _filled(config, _template(config), places, _NOBODY)

    def describe(self, target: str, payload: Mapping[str, Any]) -> str:
        """Method, path and target, and which values are sent."""
        call = _template(self._config(target))
        places = Places(payload, effect_id="its-id", job_id="the-job", tenant="tenant", slot="slot")
        values = f", with the values {', '.join(sorted(payload))}" if payload else ""
        return f"Sends {call.method} {places.path(call.path)} to the target {target}{values}."

    def prepare(self, config: HttpTargetConfig, order: EffectOrder) -> Prepared:
        """The call that the template makes of the effect."""
        return _filled(config, _template(config), _places(order), order.effect_id)

    def can_be_asked(self, target: str) -> bool:
        """Whether the target has a look-up, or names things by our key."""
        return super().can_be_asked(target) or self._config(target).capability == "upsert_key"

    def look_up_path(self, config: HttpTargetConfig, order: EffectOrder) -> str | None:
        """Where the template puts the thing, or where `look_up` says."""
        if config.look_up is not None:
            filled = _places(order).path(config.look_up.replace("{key}", "{effect_id}"))
            return check_path(filled)
        return check_path(_places(order).path(_template(config).path)) if config.capability == "upsert_key" else None


def _places(order: EffectOrder) -> Places:
    return Places(order.payload, effect_id=order.effect_id, job_id=order.job_id, tenant=order.tenant, slot=order.slot)


def _template(config: HttpTargetConfig) -> Template:
    if config.call is None:
        raise ValueError(f"target {config.name}: has no template")
    return config.call


def _filled(config: HttpTargetConfig, call: Template, places: Places, effect_id: str) -> Prepared:
    path = check_path(places.path(call.path))
    content = None if call.body is None else json_bytes(places.body(call.body))
    headers = filled_headers(call, places)
    if config.capability == "upsert_key":
        return Prepared(call.method, path, content, effect_id, headers, sure_thing=True)
    return Prepared(call.method, path, content, None if call.method == "POST" else path, headers)
