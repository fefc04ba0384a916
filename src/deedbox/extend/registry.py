"""The application a user writes: connectors, and actions registered on it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from deedbox.extend.action import Action, Handler, KeyFrom, KeyRule, RegistrationError, make_action
from deedbox.extend.connector import Connector
from deedbox.extend.follow_up import FollowUp
from deedbox.model.backoff import Retry
from deedbox.model.consequence import LICENSED, Consequence
from deedbox.model.facts import EffectKind
from deedbox.model.failure import Answer, FailureClass
from deedbox.model.policy import Policy, hold

_ROLE = re.compile(r"[a-z][a-z0-9_]{0,62}")


def checked_domains(domains: Mapping[str, str | None]) -> dict[str, str | None]:
    """The roles that domains name. Raises RegistrationError for one that cannot be a role, or a licensed domain without one."""
    for domain, role in domains.items():
        if role is None and domain in LICENSED:
            raise RegistrationError(f"the domain {domain!r} needs a licensed person: name the role that its deciders hold")
        if role is not None and not _ROLE.fullmatch(role):
            raise RegistrationError(f"the domain {domain!r}: {role!r} is not a role")
    return dict(domains)


class App:
    """What Deedbox can do for one team: its actions, and the connectors through which they act.

    Everything is checked where it is declared; a declaration that lacks what it needs raises RegistrationError at import,
    never at the first job.
    """

    def __init__(self, *, connectors: Sequence[Connector] = (), domains: Mapping[str, str | None] | None = None) -> None:
        """Register the connectors by their names, and the role that each domain of the actions names.

        `domains` gives a domain the role that whoever decides effects of it must hold; None says that it needs no such role,
        which a domain of licensed professions cannot say. Raises RegistrationError for a name used twice, or such a domain.
        """
        self.domains = checked_domains(domains or {})
        self.connectors: dict[str, Connector] = {}
        self.actions: dict[str, Action] = {}
        for connector in connectors:
            if connector.name in self.connectors:
                raise RegistrationError(f"connector {connector.name!r} is registered twice")
            self.connectors[connector.name] = connector

    def action(
        self,
        *,
        roles: Iterable[str],
        version: int = 1,
        approvers: Iterable[str] = (),
        policy: Policy | None = None,
        retry: Retry | None = None,
        key: KeyRule = "require",
        key_from: KeyFrom | None = None,
        queue: str = "default",
        priority: int = 100,
        deadline: str | float | None = None,
        again: Iterable[str] = (),
        keep: str | float | None = None,
        on_failure: Mapping[FailureClass, Answer] | None = None,
        callback: str | None = None,
        max_runtime: str | float = "1h",
        accepts: Iterable[int] = (),
        kind: EffectKind | None = None,
        hold_input: bool = False,
        consequence: Consequence = "consequential",
        domain: str | None = None,
        escalate_to: str | None = None,
        escalate_after: str | float | None = None,
        mask: bool | Iterable[str] = False,
        data_subject: KeyFrom | None = None,
        follow_ups: Iterable[FollowUp] = (),
        tool: bool | None = None,
        tool_calls: int = 100,
        object_id: str | None = None,
        task_error: bool = False,
        tool_wait: str | float | None = None,
    ) -> Callable[[Handler], Handler]:
        """Register a handler `async def verb_noun(ctx: Context, input: Model) -> Output`; a `def` runs in a thread.

        `roles` may run it and `approvers` decide what it proposes. `key` says what happens without an idempotency key:
        `require` refuses, `content` uses the hash of the input, `new` makes a fresh one. `max_runtime` caps one attempt.
        `key_from` finds the key in the input where the caller sends none: the dotted name of a field (`event.id`,
        `file.sha256` of a document), or a function of the validated input; where that is empty, `key` decides.
        `queue` is where workers that serve it look, and `priority` is from 0, the most urgent, to 1000. A job that has not
        ended `deadline` after it was accepted is canceled, unless its effects have left. `again` narrows who may take up or
        replace its jobs to these roles.
        Input, output, steps, documents and what was proposed are removed `keep` after the job has ended (`30d`; the setting
        DEEDBOX_KEEP_DAYS where it is not given); that it ran, what was decided and the receipts stay.
        `on_failure` says of classes of failure what becomes of the job, where the rule of the class does not suit: `retry`,
        `retry_once`, `fail`, or `hold`, which lets a person decide; which of them a class takes is in the documentation.
        `kind` says what its effects are (`record`,
        `message`, `access` or `money`) where they or their connectors say nothing graver; access and money hold unless a rule
        covers them. With `hold_input` a person approves the arguments before the action runs.
        `consequence` is what its effects can lead to: `read`, `reversible`, `consequential` or `grave`; `domain` is one that
        the app declares, and whoever decides its effects holds the role that the domain names.
        What nobody has decided `escalate_after` (`4h`) the role `escalate_to` may decide as well, and is told of it.
        `callback` names the receiver (DEEDBOX_CALLBACKS) that is told what becomes of a job where the call names none.
        What looks like a secret in the input (a key, a token, the number of a card) is refused; `mask` lists the fields where
        it is masked instead before anything is stored, or is True for all of them: mails quote cards. `data_subject` finds
        whom the input is about (a customer's address or number), so that it can be erased: a dotted name, or a function.
        `follow_ups` are what the reader of a finished result may ask for next; the widget shows them as buttons.
        With `tool=True` it is offered to agents, and refused here unless it keeps the contract of tools: every object of its
        input and output names its members, every text has a longest length, and a field such as `history` says why it is
        there. `tool=False` offers it to none; where nothing is said it is offered if it keeps the contract. `object_id` is the
        dotted name of the output's member that names the thing, `tool_calls` how many calls of tools one of its own jobs may
        make, and `task_error` has its failures told as the protocol's own. `tool_wait` is how long a call of the tool waits for
        its end where the caller does not say: 0 suits what always takes long, and is answered with the job's number at once.
        With `consequence="read"` and `allow()` it can have no effects, and whoever may read may run it with one of its roles.
        `accepts` lists older versions whose stored jobs this code may run. Raises RegistrationError.
        """

        def register(handler: Handler) -> Handler:
            action = make_action(
                handler,
                version=version,
                roles=frozenset(roles),
                approvers=frozenset(approvers),
                policy=hold() if policy is None else policy,
                retry=Retry() if retry is None else retry,
                key_rule=key,
                queue=queue,
                max_runtime=max_runtime,
                accepts=frozenset(accepts),
                key_from=key_from,
                priority=priority,
                deadline=deadline,
                again=frozenset(again),
                keep=keep,
                on_failure=on_failure,
                kind=kind,
                hold_input=hold_input,
                payloads={name: connector.payload_model for name, connector in self.connectors.items()},
                consequence=consequence,
                domain=domain,
                domains=self.domains,
                escalate_to=escalate_to,
                escalate_after=escalate_after,
                callback=callback,
                mask=mask,
                data_subject=data_subject,
                follow_ups=follow_ups,
                tool=tool,
                tool_calls=tool_calls,
                object_id=object_id,
                task_error=task_error,
                tool_wait=tool_wait,
            )
            if action.name in self.actions:
                raise RegistrationError(f"action {action.name!r} is registered twice")
            self.actions[action.name] = action
            return handler

        return register
