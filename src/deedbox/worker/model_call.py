"""One question to a model behind an OpenAI-compatible endpoint, answered by a validated value or by a classified failure.

Only plain chat completions are used, no tools and no response format, so any server that speaks the protocol will do. The
schema is part of the prompt; the answer is read tolerantly (fences, prose and reasoning around one JSON object) and validated
strictly. What fails is shown to the model again, naming path and rule, at most `repairs` times: one call makes at most
`repairs + 1` requests, because nothing below repeats a request by itself. The loop is ours rather than an agent's: a cut-off
answer is asked for again with a larger limit, which an agent refuses, and a call without tools has no use for one.

No message, failure or identity made here contains the prompt, the answer, the key or the host.
"""

import asyncio
import ipaddress
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import httpx2
from openai import APIStatusError, AsyncOpenAI, Omit
from pydantic import BaseModel, SecretStr
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from deedbox.model.backoff import retry_after_s as retry_after_of
from deedbox.model.backoff import seconds
from deedbox.model.errors import Problem
from deedbox.model.failure import ActionFailure, Failure, FailureClass, class_of_status
from deedbox.worker.model_answer import AnswerError, read_answer
from deedbox.worker.model_result import ModelCall, ModelFailure
from deedbox.worker.patience import Patience

MAX_REPAIRS = 3
FIRST_LARGER_LIMIT = 4096
CONNECT_S = 10.0

_FORMAT = (
    "Answer with exactly one JSON object that is valid under the JSON Schema below. "
    "Write nothing before or after it, and no code fence.\n\n{schema}"
)
_REPAIR = "Your answer cannot be used:\n{problems}\nAnswer again with the whole corrected JSON object and nothing else."
_SHORTER = "\n\n(An earlier answer was cut off before its end. Keep the answer short.)"
_MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+/ -]{0,127}")
# What the library trips over when a server answers 200 with something that is no chat completion.
_MALFORMED = (UnexpectedModelBehavior, LookupError, AttributeError, TypeError, ValueError, RuntimeError)


@dataclass(frozen=True)
class ModelEndpoint:
    """Where to ask, as whom, for which model, and how patiently.

    A request may take `timeout_s` seconds. Once enough were measured it may take three times what all but one in a hundred
    took, never less than `least_timeout_s` and never more than `timeout_s`. `repairs` (0 to 3) bounds the requests after the
    first one. Without `max_output_tokens` the server's own limit holds. Raises ValueError for anything that could not be used.
    """

    base_url: str
    api_key: SecretStr | None
    model: str
    timeout_s: float = 60.0
    repairs: int = 1
    max_output_tokens: int | None = None
    least_timeout_s: float = 5.0

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


class ModelClient:
    """Asks one endpoint. Safe to share between concurrent calls; holds no state of a call, only how long answers take."""

    def __init__(self, endpoint: ModelEndpoint, http_client: httpx2.AsyncClient) -> None:
        """Take over `http_client`, which decides what addresses may be reached; `aclose` closes it."""
        self._endpoint = endpoint
        self._http = http_client
        self._patience = Patience(endpoint.timeout_s, endpoint.least_timeout_s)
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
        )
        self._model = OpenAIChatModel(endpoint.model, provider=OpenAIProvider(openai_client=client), profile=profile)

    async def aclose(self) -> None:
        """Close the HTTP client. Calls in flight end as failures."""
        await self._http.aclose()

    async def call(
        self, output: type[BaseModel], prompt: str, *, instructions: str | None = None, prompt_version: str | None = None
    ) -> ModelCall:
        """Ask once, repair at most `repairs` times, and return the validated output. Raises ModelFailure.

        Half surrogate pairs and U+0000 in the prompt are sent as question marks: no server takes them reliably.
        """
        run = _Run(self._endpoint, prompt_version)
        schema = json.dumps(output.model_json_schema(), ensure_ascii=False, separators=(",", ":"))
        system = _sendable("\n\n".join(part for part in (instructions, _FORMAT.format(schema=schema)) if part))
        prompt = _sendable(prompt)
        messages: list[ModelMessage] = [_user(prompt, system)]
        limit, widened = self._endpoint.max_output_tokens, False
        while True:
            response = await self._request(messages, limit)
            if isinstance(response, Failure):
                raise run.failure(_too_wide(response) if widened and response.failure_class == "caller_error" else response)
            text = run.take(response)
            if response.finish_reason == "content_filter":
                raise run.failure(Failure("rejected_output", "model_refused", "The model refused to answer."))
            cut = response.finish_reason == "length"
            try:
                return run.success(read_answer(output, text, cut=cut))
            except AnswerError as error:
                problems = error.problems
            if run.repairs == self._endpoint.repairs or (cut and widened):
                raise run.failure(_unusable(problems, cut=cut, repairs=run.repairs))
            run.repairs += 1
            if cut:
                limit, widened = 2 * (limit or max(response.usage.output_tokens, FIRST_LARGER_LIMIT // 2)), True
                messages = [_user(prompt + _SHORTER, system)]
            else:
                messages = _repair(prompt, system, text, problems)

    async def _request(self, messages: Sequence[ModelMessage], limit: int | None) -> ModelResponse | Failure:
        """One request, ended in its time however the server behaves.

        A failure is returned, so that what is raised later has no context that quotes the server.
        """
        settings = ModelSettings() if limit is None else ModelSettings(max_tokens=limit)
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._patience.limit_s):
                response = await model_request(self._model, messages, model_settings=settings)
        except TimeoutError:
            self._patience.took(started)
            return _TIMED_OUT
        except (ModelAPIError, ActionFailure, httpx2.HTTPError, OSError) as error:
            return _failure_of(error)
        except _MALFORMED:
            return _MALFORMED_ANSWER
        self._patience.took(started)
        return response


class _Run:
    """The facts of one call while it goes on."""

    def __init__(self, endpoint: ModelEndpoint, prompt_version: str | None) -> None:
        self._started = time.monotonic()
        self._prompt_version = prompt_version
        self._identity = {"provider": "openai-compatible", "model": endpoint.model, "endpoint": endpoint.endpoint_class}
        self._usage = {"input_tokens": 0, "output_tokens": 0, "requests": 0}
        self.repairs = 0

    def take(self, response: ModelResponse) -> str:
        """Count an answer and return its text. A model name that could be a path or an address is not believed."""
        self._usage["requests"] += 1
        self._usage["input_tokens"] += response.usage.input_tokens
        self._usage["output_tokens"] += response.usage.output_tokens
        name = response.model_name or ""
        if _MODEL_NAME.fullmatch(name) and "//" not in name:
            self._identity["model"] = name
        return "".join(part.content for part in response.parts if isinstance(part, TextPart))

    def success(self, output: BaseModel) -> ModelCall:
        """The finished call."""
        return ModelCall(
            output=output,
            identity=dict(self._identity),
            repairs=self.repairs,
            usage=dict(self._usage),
            validation="repaired" if self.repairs else "valid",
            duration_ms=round((time.monotonic() - self._started) * 1000),
            prompt_version=self._prompt_version,
        )

    def failure(self, failure: Failure) -> ModelFailure:
        """The failed call."""
        return ModelFailure(failure, identity=dict(self._identity), repairs=self.repairs, usage=dict(self._usage))


_TIMED_OUT = Failure("overloaded", "model_timeout", "The model did not answer in time.")
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
    return Failure("overloaded", "model_connection_lost", "The connection to the model's server was lost.")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by an answer's `Retry-After`, in either form, or None."""
    return retry_after_of(headers.get("retry-after", ""), headers.get("date", ""))


def _unusable(problems: Sequence[Problem], *, cut: bool, repairs: int) -> Failure:
    times = f"{repairs} repair{'' if repairs == 1 else 's'}"
    if cut:
        return Failure("truncated", "truncated", f"The model's answer was cut off by the token limit, after {times}.")
    where = ", ".join(f"{item.pointer or '/'} ({item.rule})" for item in problems[:5])
    return Failure("invalid_output", "invalid_output", f"The model's answer does not fit the schema after {times}: {where}.")


def _too_wide(refused: Failure) -> Failure:
    """The larger limit was refused: what failed is still the answer that was cut off."""
    return replace(refused, failure_class="truncated", code="truncated", message="The answer needs more tokens than allowed.")


def _user(prompt: str, system: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(prompt)], instructions=system)


def _repair(prompt: str, system: str, answer: str, problems: Sequence[Problem]) -> list[ModelMessage]:
    """The question, the last answer and what is wrong with it; never more, so that the context cannot grow."""
    listed = "\n".join(f"- at {item.pointer or '/'}: rule {item.rule}: {item.message}" for item in problems)
    request = _REPAIR.format(problems=_sendable(listed))
    if not answer.strip():
        return [_user(f"{prompt}\n\n{request}", system)]
    return [_user(prompt, system), ModelResponse(parts=[TextPart(_sendable(answer))]), _user(request, system)]


def _sendable(text: str) -> str:
    """The text without what JSON over UTF-8 cannot carry everywhere: lone surrogates and U+0000."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")
