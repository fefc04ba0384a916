"""One endpoint that speaks chat completions: where it is, how patiently it is asked, and what its failures mean.

One request is one attempt: nothing below repeats it. A failure is returned rather than raised, so that what is raised later has
no context that quotes the server. No failure and no identity made here contains the prompt, the answer, the key or the host.
"""

import asyncio
import ipaddress
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

import httpx2
from openai import APIStatusError, AsyncOpenAI, Omit
from pydantic import SecretStr
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from deedbox import telemetry
from deedbox.model.backoff import retry_after_s as retry_after_of
from deedbox.model.backoff import seconds
from deedbox.model.failure import ActionFailure, Failure, FailureClass, class_of_status
from deedbox.worker.model_settings import DEFAULT
from deedbox.worker.patience import Patience

MAX_REPAIRS = 3
CONNECT_S = 10.0
DRAFT_EVERY_S = 0.5
"""How often a listener is told, at most."""
_MILLION = Decimal(1_000_000)
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/ -]{0,127}")
# What the library trips over when a server answers 200 with something that is no chat completion.
_MALFORMED = (UnexpectedModelBehavior, LookupError, AttributeError, TypeError, ValueError, RuntimeError)

Listener = Callable[[str], Awaitable[None]]
"""Is told the text of an answer as far as it has come."""


@dataclass(frozen=True)
class ModelEndpoint:
    """Where to ask, as whom, for which model, and how patiently.

    A request may take `timeout_s` seconds. Once enough were measured it may take three times what all but one in a hundred
    took, never less than `least_timeout_s` and never more than `timeout_s`. `repairs` (0 to 3) bounds the requests after the
    first one. Without `max_output_tokens` the server's own limit holds. `at_once` requests are under way at most, others wait;
    prices are for a million tokens. Raises ValueError for anything that could not be used.
    """

    base_url: str
    api_key: SecretStr | None
    model: str
    timeout_s: float = 60.0
    repairs: int = 1
    max_output_tokens: int | None = None
    least_timeout_s: float = 5.0
    name: str = DEFAULT
    at_once: int | None = None
    input_price: Decimal | None = None
    output_price: Decimal | None = None
    currency: str = "USD"
    send_key: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that could only fail later, without repeating their values: a URL may carry a secret."""
        url = urlsplit(self.base_url)
        if url.scheme not in {"http", "https"} or not url.hostname or url.username is not None or url.query or url.fragment:
            raise ValueError("base_url: must be an http or https URL with a host, without credentials, query or fragment")
        if self.api_key is not None and not re.fullmatch(r"[\x21-\x7e]+", self.api_key.get_secret_value()):
            raise ValueError("api_key: must be printable ASCII without spaces; leave it out when there is none")
        if not self.model.strip():
            raise ValueError("model: must not be blank")
        seconds(self.timeout_s, name="timeout_s")
        seconds(self.least_timeout_s, name="least_timeout_s")
        if not 0 <= self.repairs <= MAX_REPAIRS:
            raise ValueError(f"repairs: {self.repairs} must be between 0 and {MAX_REPAIRS}")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise ValueError(f"max_output_tokens: {self.max_output_tokens} must be at least 1")

    @property
    def endpoint_class(self) -> str:
        """`local` where the address itself says that the text stays on this machine or network, else `remote`."""
        host = urlsplit(self.base_url).hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return "local"
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return "remote"
        return "local" if address.is_loopback or address.is_private or address.is_link_local else "remote"

    @property
    def identity(self) -> dict[str, str]:
        """What the journal calls it; the model is the one asked for, until an answer names another."""
        return {
            "provider": "openai-compatible",
            "model": self.model,
            "endpoint": self.endpoint_class,
            "name": self.name,
        }

    def cost(self, input_tokens: int, output_tokens: int) -> Decimal | None:
        """What so many tokens cost in its currency, None where it has no price."""
        if self.input_price is None or self.output_price is None:
            return None
        return (self.input_price * input_tokens + self.output_price * output_tokens) / _MILLION


class _BareClient(AsyncOpenAI):
    """The SDK's client without what it would take from the environment: keys, organisations, headers, machine details."""

    bearer: SecretStr | None = None

    @property
    def default_headers(self) -> dict[str, str | Omit]:
        headers: dict[str, str | Omit] = {"Accept": "application/json", "Content-Type": "application/json"}
        key = self.bearer
        headers["Authorization"] = Omit() if key is None else f"Bearer {key.get_secret_value()}"
        return headers

    def _validate_headers(self, headers: Mapping[str, object], custom_headers: Mapping[str, object]) -> None:
        """A local server may need no key."""


class EndpointClient:
    """Asks one endpoint. Safe to share between concurrent calls; holds no state of a call, only how long answers take."""

    def __init__(self, endpoint: ModelEndpoint, http_client: httpx2.AsyncClient) -> None:
        """Take over `http_client`, which decides what addresses may be reached; `aclose` closes it."""
        self.endpoint = endpoint
        self._http = http_client
        self._patience = Patience(endpoint.timeout_s, endpoint.least_timeout_s)
        self._room = None if endpoint.at_once is None else asyncio.Semaphore(endpoint.at_once)
        client = _BareClient(
            api_key="unused",
            admin_api_key="",
            organization="",
            project="",
            webhook_secret="",
            base_url=endpoint.base_url,
            timeout=httpx2.Timeout(endpoint.timeout_s, connect=min(CONNECT_S, endpoint.timeout_s)),
            max_retries=0,
            http_client=http_client,
        )
        client.bearer = endpoint.api_key
        openai_itself = (urlsplit(endpoint.base_url).hostname or "").endswith((".openai.com", ".openai.azure.com"))
        profile = OpenAIModelProfile(
            openai_chat_supports_max_completion_tokens=openai_itself,
            # The library would cut reasoning tags out of strings inside the JSON too; model_answer knows the difference.
            thinking_tags=("\x00<", "\x00>"),
            # A stream that ends without one broke off, however much of it can be read.
            openai_chat_streaming_requires_finish_reason=True,
        )
        self.model = OpenAIChatModel(endpoint.model, provider=OpenAIProvider(openai_client=client), profile=profile)

    async def aclose(self) -> None:
        """Close the HTTP client. Requests in flight end as failures."""
        await self._http.aclose()

    async def ask(
        self,
        messages: Sequence[ModelMessage],
        *,
        limit: int | None = None,
        parameters: ModelRequestParameters | None = None,
        listener: Listener | None = None,
        key: str | None = None,
    ) -> ModelResponse | Failure:
        """One request, ended in its time however the server behaves, streamed where somebody listens.

        `limit` is of the answer's tokens. `key` goes along as `Idempotency-Key` where the endpoint takes one.
        """
        settings = ModelSettings()
        if limit is not None:
            settings["max_tokens"] = limit
        if key is not None and self.endpoint.send_key:
            settings["extra_headers"] = {"Idempotency-Key": key}
        async with self._place() as placed:
            if not placed:
                return _BUSY
            started = time.monotonic()
            answer = await self._exchange(list(messages), settings, parameters, listener)
            if answer is _TIMED_OUT or not isinstance(answer, Failure):
                self._patience.took(started)
        outcome = answer.code if isinstance(answer, Failure) else "answered"
        telemetry.MODEL_REQUESTS.labels(self.endpoint.name, outcome).inc()
        telemetry.MODEL_SECONDS.labels(self.endpoint.name).observe(time.monotonic() - started)
        return answer

    @asynccontextmanager
    async def _place(self) -> AsyncGenerator[bool]:
        """A place among the requests that are under way; False where none came free in the longest time of a request."""
        if self._room is None:
            yield True
            return
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                await self._room.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._room.release()

    async def _exchange(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings,
        parameters: ModelRequestParameters | None,
        listener: Listener | None,
    ) -> ModelResponse | Failure:
        try:
            async with asyncio.timeout(self._patience.limit_s):
                if listener is None:
                    return await model_request(
                        self.model, messages, model_settings=settings, model_request_parameters=parameters
                    )
                return await self._streamed(messages, settings, parameters, listener)
        except TimeoutError:
            return _TIMED_OUT
        except (ModelAPIError, ActionFailure, httpx2.HTTPError, OSError) as error:
            return _failure_of(error)
        except _MALFORMED:
            return _MALFORMED_ANSWER

    async def _streamed(
        self,
        messages: list[ModelMessage],
        settings: ModelSettings,
        parameters: ModelRequestParameters | None,
        listener: Listener,
    ) -> ModelResponse:
        stream_of = model_request_stream(self.model, messages, model_settings=settings, model_request_parameters=parameters)
        heard = -1e9
        async with stream_of as stream:
            async for _ in stream:
                # What has come is put together only when it is wanted: for each token it would cost the square of their number.
                now = time.monotonic()
                if now - heard >= DRAFT_EVERY_S and (text := text_of(stream.get())):
                    heard = now
                    await listener(text)
            return stream.get()


def text_of(response: ModelResponse) -> str:
    """What an answer says, without its calls of tools."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


def model_of(response: ModelResponse, asked: str) -> str:
    """The model that answered. A name that could be a path or an address is not believed."""
    name = response.model_name or ""
    return name if _MODEL_NAME.fullmatch(name) and "//" not in name else asked


_TIMED_OUT = Failure("overloaded", "model_timeout", "The model did not answer in time.")
_BUSY = Failure("overloaded", "model_busy", "Too many requests to the model's server are under way.")
_CONNECTION_LOST = Failure("overloaded", "model_connection_lost", "The connection to the model's server was lost.")
_MALFORMED_ANSWER = Failure(
    "overloaded", "model_bad_response", "The model's server answered with something that is no completion."
)

_BY_CLASS: dict[FailureClass, tuple[str, str]] = {
    "rate_limited": ("model_rate_limited", "The model's server asks for fewer requests."),
    "overloaded": ("model_overloaded", "The model's server is overloaded or broken."),
    "denied": ("model_denied", "The model's server refused the credentials."),
    "caller_error": ("model_request_refused", "The model's server refused the request."),
}


def _failure_of(error: Exception) -> Failure:
    """The class of what the library raised, by phase and status; the guarded HTTP client's own failures keep theirs."""
    cause: BaseException | None = error
    status: int | None = None
    headers: Mapping[str, str] = {}
    while cause is not None:
        if isinstance(cause, ActionFailure):
            return Failure(cause.failure_class, cause.code, cause.message, cause.retry_after)
        if isinstance(cause, ModelHTTPError):
            status, headers = cause.status_code, cause.headers or {}
        elif isinstance(cause, APIStatusError):
            status, headers = cause.status_code, cause.response.headers
        cause = cause.__cause__
    if status is not None:
        failure_class = class_of_status(status)
        code, sentence = _BY_CLASS[failure_class]
        return Failure(failure_class, code, f"{sentence} (HTTP {status})", retry_after_s(headers))
    if isinstance(error, ModelConnectionError) and error.phase in {"connect", "pool"}:
        return Failure("not_sent", "model_unreachable", "The model's server cannot be reached.")
    if isinstance(error, ModelTimeoutError):
        return _TIMED_OUT
    if isinstance(error, ModelAPIError) and not isinstance(error, ModelConnectionError):
        return _MALFORMED_ANSWER
    return _CONNECTION_LOST


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by an answer's `Retry-After`, in either form, or None."""
    return retry_after_of(headers.get("retry-after", ""), headers.get("date", ""))
