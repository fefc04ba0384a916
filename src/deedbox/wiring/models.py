"""The model endpoints that settings name, behind the one guarded HTTP client."""

from deedbox.egress import EgressPolicy, async_http_client
from deedbox.settings import Settings
from deedbox.wiring.places import StartError
from deedbox.worker.endpoint import EndpointClient, ModelEndpoint
from deedbox.worker.model_call import ModelClient
from deedbox.worker.model_settings import ModelConfig


def model_client(settings: Settings, policy: EgressPolicy) -> ModelClient:
    """Asks the endpoints of the settings, the first one where none is named.

    Raises StartError naming the endpoint that cannot be used, without repeating what may be a secret, ValueError for none.
    """
    first, *others = settings.endpoints
    return ModelClient(
        _endpoint(first, settings.model_currency),
        async_http_client(policy, first.timeout_s),
        *(EndpointClient(_endpoint(one, settings.model_currency), async_http_client(policy, one.timeout_s)) for one in others),
        fallback={one.name: one.fallback for one in settings.endpoints},
    )


def _endpoint(config: ModelConfig, currency: str) -> ModelEndpoint:
    try:
        return ModelEndpoint(
            base_url=config.base_url,
            api_key=config.api_key,
            model=config.model,
            timeout_s=config.timeout_s,
            repairs=config.repairs,
            max_output_tokens=config.max_output_tokens,
            least_timeout_s=config.least_timeout_s,
            name=config.name,
            at_once=config.at_once,
            input_price=config.input_price,
            output_price=config.output_price,
            currency=currency,
            send_key=config.send_key,
        )
    except ValueError as error:
        raise StartError(f"the model endpoint {config.name}: {error}") from None
