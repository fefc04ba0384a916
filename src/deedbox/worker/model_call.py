"""One question to a model behind an OpenAI-compatible endpoint, answered by a validated value or by a classified failure.

Only plain chat completions are used, no tools and no response format, so any server that speaks the protocol will do. The
schema is part of the prompt; the answer is read tolerantly (fences, prose and reasoning around one JSON object) and validated
strictly. What fails is shown to the model again, naming path and rule, at most `repairs` times: one call makes at most
`repairs + 1` requests of an endpoint, because nothing below repeats a request by itself. The loop is ours rather than an
agent's: a cut-off answer is asked for again with a larger limit, which an agent refuses, and a call without tools has no use
for one. Another endpoint is asked only where the settings name it as the fallback of the first.

No message, failure or identity made here contains the prompt, the answer, the key or the host.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import httpx2
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from deedbox.model.errors import Problem
from deedbox.model.failure import ActionFailure, Failure
from deedbox.worker.agent_story import AgentRun
from deedbox.worker.endpoint import MAX_REPAIRS, EndpointClient, ModelEndpoint, model_of, retry_after_s, text_of
from deedbox.worker.model_answer import AnswerError, read_answer
from deedbox.worker.model_result import PLAIN, ModelCall, ModelFailure, Spent, Terms

__all__ = ["FORMAT", "MAX_REPAIRS", "ModelCall", "ModelClient", "ModelEndpoint", "ModelFailure", "retry_after_s"]

FIRST_LARGER_LIMIT = 4096
AWAY = frozenset({"not_sent", "rate_limited", "overloaded"})
"""Classes of failure after which a declared fallback is asked."""

FORMAT = (
    "Answer with exactly one JSON object that is valid under the JSON Schema below. "
    "Write nothing before or after it, and no code fence.\n\n{schema}"
)
_REPAIR = "Your answer cannot be used:\n{problems}\nAnswer again with the whole corrected JSON object and nothing else."
_SHORTER = "\n\n(An earlier answer was cut off before its end. Keep the answer short.)"


class ModelClient:
    """Asks the endpoints of an installation. Safe to share between concurrent calls; holds no state of a call."""

    def __init__(
        self,
        endpoint: ModelEndpoint,
        http_client: httpx2.AsyncClient,
        *further: EndpointClient,
        fallback: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Ask `endpoint` through `http_client` unless another one is named: one of `further`.

        `fallback` names, by endpoint, which ones are asked instead while it is away. `aclose` closes all clients.
        """
        self._first = EndpointClient(endpoint, http_client)
        self._clients = {client.endpoint.name: client for client in (self._first, *further)}
        self._fallback = dict(fallback or {})

    async def aclose(self) -> None:
        """Close the HTTP clients. Calls in flight end as failures."""
        for client in self._clients.values():
            await client.aclose()

    def chain(self, name: str | None) -> list[EndpointClient]:
        """The endpoint of that name, by default the first one, with its fallbacks. Raises ActionFailure (bug)."""
        if name is None:
            name = self._first.endpoint.name
        if name not in self._clients:
            raise ActionFailure("bug", "unknown_endpoint", f"No model endpoint {name!r} is configured.")
        return [self._clients[one] for one in (name, *self._fallback.get(name, ()))]

    async def call(
        self,
        output: type[BaseModel],
        prompt: str,
        *,
        instructions: str | None = None,
        prompt_version: str | None = None,
        terms: Terms = PLAIN,
    ) -> ModelCall:
        """Ask once, repair at most `repairs` times, and return the validated output. Raises ModelFailure.

        Half surrogate pairs and U+0000 in the prompt are sent as question marks: no server takes them reliably.
        """
        clients = self.chain(terms.endpoint)
        for client in clients[:-1]:
            try:
                return await _call(client, output, prompt, instructions, prompt_version, terms)
            except ModelFailure as failure:
                if failure.failure_class not in AWAY:
                    raise
        return await _call(clients[-1], output, prompt, instructions, prompt_version, terms)

    async def agent(self, run: AgentRun) -> BaseModel:
        """A validated output from a model that calls tools. Raises ToolPending, or ActionFailure."""
        # Imported late: an agent's loop is a large part of the library, which plain questions do not use.
        from deedbox.worker.agent import run_agent  # noqa: PLC0415

        return await run_agent(self.chain(run.ask.endpoint), run)


async def _call(
    client: EndpointClient,
    output: type[BaseModel],
    prompt: str,
    instructions: str | None,
    prompt_version: str | None,
    terms: Terms,
) -> ModelCall:
    run = _Run(client.endpoint, prompt_version or terms.prompt_version)
    system = sendable("\n\n".join(part for part in (instructions, wanted(output)) if part))
    prompt = sendable(prompt)
    messages: list[ModelMessage] = [_user(prompt, system)]
    limit, widened = client.endpoint.max_output_tokens, False
    while True:
        key = None if terms.key is None else f"{terms.key}-{run.repairs}"
        response = await client.ask(messages, limit=limit, listener=terms.listener, key=key)
        run.sent += 1
        if isinstance(response, Failure):
            refused = _too_wide(response) if widened and response.failure_class == "caller_error" else response
            raise await run.failure(refused, terms)
        text = run.take(response)
        if response.finish_reason == "content_filter":
            raise await run.failure(MODEL_REFUSED, terms)
        cut = response.finish_reason == "length"
        try:
            found = read_answer(output, text, cut=cut)
        except AnswerError as error:
            problems = error.problems
        else:
            return await run.success(found, terms)
        if run.repairs == client.endpoint.repairs or (cut and widened):
            raise await run.failure(unusable(problems, cut=cut, repairs=run.repairs), terms)
        run.repairs += 1
        if cut:
            limit, widened = larger(limit, response), True
            messages = [_user(prompt + _SHORTER, system)]
        else:
            messages = _repair(prompt, system, text, problems)


class _Run:
    """The facts of one call while it goes on."""

    def __init__(self, endpoint: ModelEndpoint, prompt_version: str | None) -> None:
        self._started = time.monotonic()
        self._prompt_version = prompt_version
        self._endpoint = endpoint
        self._identity = endpoint.identity
        self._usage = {"input_tokens": 0, "output_tokens": 0, "requests": 0}
        self.repairs = 0
        self.sent = 0

    def take(self, response: ModelResponse) -> str:
        """Count an answer and return its text."""
        self._usage["requests"] += 1
        self._usage["input_tokens"] += response.usage.input_tokens
        self._usage["output_tokens"] += response.usage.output_tokens
        self._identity["model"] = model_of(response, self._identity["model"])
        return text_of(response)

    @property
    def _took_ms(self) -> int:
        return round((time.monotonic() - self._started) * 1000)

    async def success(self, output: BaseModel, terms: Terms) -> ModelCall:
        """The finished call, once it is told what was spent."""
        await terms.told(self._spent(None))
        return ModelCall(
            output=output,
            identity=dict(self._identity),
            repairs=self.repairs,
            usage=dict(self._usage),
            validation="repaired" if self.repairs else "valid",
            duration_ms=self._took_ms,
            prompt_version=self._prompt_version,
        )

    async def failure(self, failure: Failure, terms: Terms) -> ModelFailure:
        """The failed call, once it is told what was spent."""
        await terms.told(self._spent(failure.code))
        return ModelFailure(failure, identity=dict(self._identity), repairs=self.repairs, usage=dict(self._usage))

    def _spent(self, code: str | None) -> Spent:
        tokens = self._usage["input_tokens"], self._usage["output_tokens"]
        return spent(
            self._endpoint, self._identity["model"], self.sent, *tokens, self._took_ms, repairs=self.repairs, code=code
        )


def spent(
    endpoint: ModelEndpoint,
    model: str,
    requests: int,
    input_tokens: int,
    output_tokens: int,
    duration_ms: int,
    *,
    tool_calls: int = 0,
    repairs: int = 0,
    code: str | None = None,
) -> Spent:
    """What the journal keeps of requests to an endpoint, with their cost where it has a price."""
    cost = endpoint.cost(input_tokens, output_tokens)
    return Spent(
        endpoint=endpoint.name,
        model=model,
        requests=requests,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        duration_ms=duration_ms,
        tool_calls=tool_calls,
        repairs=repairs,
        cost=cost,
        currency=None if cost is None else endpoint.currency,
        code=code,
    )


MODEL_REFUSED = Failure("rejected_output", "model_refused", "The model refused to answer.")


def wanted(output: type[BaseModel]) -> str:
    """What the model is told of the answer that is wanted."""
    return FORMAT.format(schema=json.dumps(output.model_json_schema(), ensure_ascii=False, separators=(",", ":")))


def larger(limit: int | None, response: ModelResponse) -> int:
    """The limit of tokens with which a cut-off answer is asked for again."""
    return 2 * (limit or max(response.usage.output_tokens, FIRST_LARGER_LIMIT // 2))


def unusable(problems: Sequence[Problem], *, cut: bool, repairs: int) -> Failure:
    """What it means that an answer fits nothing after so many repairs: where it failed, never what it said."""
    times = f"{repairs} repair{'' if repairs == 1 else 's'}"
    if cut:
        return Failure("truncated", "truncated", f"The model's answer was cut off by the token limit, after {times}.")
    where = ", ".join(f"{item.pointer or '/'} ({item.rule})" for item in problems[:5])
    return Failure("invalid_output", "invalid_output", f"The model's answer does not fit the schema after {times}: {where}.")


def repair_request(problems: Sequence[Problem]) -> str:
    """What the model is told of an answer that cannot be used."""
    listed = "\n".join(f"- at {item.pointer or '/'}: rule {item.rule}: {item.message}" for item in problems)
    return _REPAIR.format(problems=sendable(listed))


def sendable(text: str) -> str:
    """The text without what JSON over UTF-8 cannot carry everywhere: lone surrogates and U+0000."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "?")


def _too_wide(refused: Failure) -> Failure:
    """The larger limit was refused: what failed is still the answer that was cut off."""
    return replace(refused, failure_class="truncated", code="truncated", message="The answer needs more tokens than allowed.")


def _user(prompt: str, system: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(prompt)], instructions=system)


def _repair(prompt: str, system: str, answer: str, problems: Sequence[Problem]) -> list[ModelMessage]:
    """The question, the last answer and what is wrong with it; never more, so that the context cannot grow."""
    request = repair_request(problems)
    if not answer.strip():
        return [_user(f"{prompt}\n\n{request}", system)]
    return [_user(prompt, system), ModelResponse(parts=[TextPart(sendable(answer))]), _user(request, system)]
