"""Subsets scored by an endpoint: what is not kept is deleted from the prompt, and the rest sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rationales.context import Context
from rationales.endpoints.client import Client, Usage
from rationales.endpoints.pieces import Pieces, ServerTokens
from rationales.endpoints.probe import ALTERNATIVES, Capabilities, Way, generation
from rationales.endpoints.replies import Choice, Position, Reply, read_reply
from rationales.errors import BudgetError
from rationales.scoring.guard import check_stopped
from rationales.scoring.protocol import Query, Score
from rationales.ties import TIE

_FORCING = 1000
_BELOW = 0.001
"""How far below the last alternative a target counts that is none of them, in nats."""

Request = tuple[str, dict[str, Any], int]


@dataclass(frozen=True)
class _Question:
    """One query as the endpoint is asked it: requests for the target and for the alternatives."""

    requests: tuple[Request, ...]
    target_id: int
    extra_ids: tuple[int, ...]
    way: Way
    target: str
    said: str = ""
    """What the answer has said before the target, if the endpoint must say it again."""


class EndpointScorer:
    """Scores subsets by requests; ``repeat`` asks each so many times and takes the majority."""

    can_delete = True

    def __init__(
        self,
        client: Client,
        able: Capabilities,
        tokens: Pieces | ServerTokens,
        repeat: int = 1,
    ) -> None:
        self.client, self.able, self.repeat = client, able, repeat
        self.vocabulary = tokens
        self.max_positions = able.positions if isinstance(tokens, ServerTokens) else None
        self.alternatives = min(ALTERNATIVES, able.alternatives)

    @property
    def usage(self) -> Usage:
        return self.client.usage

    def evaluation(self, context: Context) -> str:
        return "deleted"

    def score(self, queries: Sequence[Query]) -> list[Score]:
        """One score for each query, in order."""
        check_stopped()
        questions = [self._question(context, kept) for context, kept in queries]
        requests = [
            (path, body, again)
            for question in questions
            for path, body, _ in question.requests
            for again in range(self.repeat)
        ]
        spent: BudgetError | None = None
        try:
            replies = self.client.ask_all(requests, read_reply)
        except BudgetError as error:
            spent, replies = error, list(error.scores)
        left = iter(replies)
        scores: list[Score | None] = []
        for question in questions:
            own = [next(left) for _ in range(len(question.requests) * self.repeat)]
            scores.append(None if None in own else self._majority(question, own))
        if spent is not None:
            raise BudgetError(str(spent), scores)
        return [score for score in scores if score is not None]

    def generate(self, ids: Sequence[int], most: int) -> list[int]:
        """The ids of what the endpoint says next, at most so many tokens."""
        check_stopped()
        path, body, _ = self._request(ids, most)
        [reply] = self.client.ask_all([(path, body, 0)], read_reply)
        if isinstance(self.vocabulary, Pieces) and not reply.positions:
            return self.vocabulary(reply.text)["input_ids"]
        return [self.vocabulary.add_choice(each.said) for each in reply.positions]

    def _question(self, context: Context, kept: Sequence[int]) -> _Question:
        ids = [context.ids[index] for index in kept]
        target, way = self.vocabulary.decode([context.target_id]), self.able.way
        if way == "prompt":
            requests = [
                self._request([*ids, id], 1, {"prompt_logprobs": 2})
                for id in (context.target_id, *context.extra_ids)
            ]
            return _Question(tuple(requests), context.target_id, context.extra_ids, way, target)
        wanted = [self.vocabulary.server_id(id) for id in (context.target_id, *context.extra_ids)]
        if way == "forced" and None not in wanted:
            requests = [
                self._request(ids, 1, {"logit_bias": [[id, _FORCING]]}, continued=True)
                for id in wanted
            ]
            return _Question(tuple(requests), context.target_id, context.extra_ids, way, target)
        way = "text" if way == "text" else "top-k"
        said, length = "", 1
        if isinstance(self.vocabulary, Pieces):
            messages, answer = self.vocabulary.split(ids)
            if messages is None:
                length = 1 if way == "top-k" else _tokens_of(target)
            elif answer and not self.able.continues_answers:
                said = self.vocabulary.decode(answer)
                length = _tokens_of(said + target)
            elif way == "text":
                length = _tokens_of(target)
        request = self._request(ids, length, continued=self.able.continues_answers)
        return _Question((request,), context.target_id, context.extra_ids, way, target, said)

    def _request(
        self,
        ids: Sequence[int],
        tokens: int,
        more: dict[str, Any] | None = None,
        continued: bool = False,
    ) -> Request:
        """The path and the body of a request; ``continued``: an answer so far is sent along."""
        version = self.client.version
        if isinstance(self.vocabulary, ServerTokens):
            alternatives = 0 if more and "prompt_logprobs" in more else self.alternatives
            body = {"prompt": list(ids)} | generation(False, tokens, alternatives)
            if self.able.server == "vLLM":
                body |= {"return_token_ids": True}
            return f"{version}/completions", body | (more or {}), 0
        messages, answer = self.vocabulary.split(ids)
        if messages is None:
            body = {"prompt": self.vocabulary.decode(ids)}
            body |= generation(False, tokens, self.alternatives)
            return f"{version}/completions", body | (more or {}), 0
        body = generation(True, tokens, self.alternatives)
        if answer and continued:
            messages = [*messages, {"role": "assistant", "content": self.vocabulary.decode(answer)}]
            if self.able.server == "vLLM":
                body |= {"continue_final_message": True, "add_generation_prompt": False}
        return f"{version}/chat/completions", {"messages": messages} | body | (more or {}), 0

    def _majority(self, question: _Question, replies: Sequence[Reply]) -> Score:
        """The score on which most repeats agree; of these, the one in the middle."""
        rounds = [replies[again :: self.repeat] for again in range(self.repeat)]
        scores = [self._score(question, each) for each in rounds]
        self.client.count(scores=1)
        if self.repeat == 1:
            return scores[0]
        most, count = Counter(score.prediction_id for score in scores).most_common(1)[0]
        self.client.count(repeats=self.repeat, agreeing=count)
        agreeing = [score for score in scores if score.prediction_id == most]
        middle = median(score.target_logprob for score in agreeing)
        return min(agreeing, key=lambda score: abs(score.target_logprob - middle))

    def _score(self, question: _Question, replies: Sequence[Reply]) -> Score:
        """The score in the replies for the target and for each alternative of a contrast."""
        if question.way == "text":
            return self._text_score(question, replies[0])
        if question.way == "top-k":
            return self._best_score(question, replies[0])
        places = [
            reply.of_prompt if question.way == "prompt" else reply.positions[0] for reply in replies
        ]
        if None in places or any(
            place.said.id not in (None, self.vocabulary.server_id(id))
            for place, id in zip(places, (question.target_id, *question.extra_ids), strict=True)
            if place is not None
        ):
            raise _wrong(self.client.url)
        first, *others = [place for place in places if place is not None]
        return self._made(question, first, first.said, [other.said.logprob for other in others])

    def _best_score(self, question: _Question, reply: Reply) -> Score:
        """The score in the alternatives of the token at the target's place.

        An endpoint that cannot continue an answer says it again from its beginning. Then the
        log-probability is that of the answer up to the target, as far as it is the same.
        """
        text, before = "", 0.0
        for position in reply.positions:
            if len(text) >= len(question.said):
                break
            if not (question.said + question.target).startswith(text + position.said.text):
                return self._diverged(question, position, text, before)
            text += position.said.text
            before += position.said.logprob
        else:
            if len(text) < len(question.said) or not reply.positions:
                # It is over before the target: the end is what it predicts.
                end = self.vocabulary.add("" if not reply.text else reply.text[-1:])  # type: ignore[union-attr]
                return Score(min(before, 0.0) - 50.0, end, rank=self.alternatives + 1)
            return Score(before, question.target_id, before, 1)
        rest = (question.said + question.target)[len(text) :]
        target = self._among(position.best or (position.said,), question.target_id, rest)
        extra = [
            self._logprob(position, self._among(position.best, id, self.vocabulary.decode([id])))
            for id in question.extra_ids
        ]
        score = self._made(question, position, target, extra)
        if before:
            own = score.prediction_logprob
            return Score(
                score.target_logprob + before,
                score.prediction_id,
                None if own is None else own + before,
                score.rank,
                score.extra_logprobs,
                score.margin,
            )
        return score

    def _diverged(self, question: _Question, position: Position, text: str, before: float) -> Score:
        """The score where the answer is another one before the target."""
        rest = question.said[len(text) :]
        own = self._among(position.best, -1, rest)
        return Score(
            before + self._logprob(position, own),
            self._id(position.said),
            before + position.said.logprob,
            rank=self.alternatives + 1,
        )

    def _made(
        self,
        question: _Question,
        position: Position,
        target: Choice | None,
        extra: Sequence[float],
    ) -> Score:
        """The score of a target that is this choice; None: it is below the last alternative."""
        best = position.best or (position.said,)
        logprob = self._logprob(position, target)
        top = best[0]
        is_first = target is not None and logprob >= top.logprob - TIE
        others = [choice for choice in best if choice != target]
        rank = len(best) + 1
        if target is not None:
            rank = 1 + sum(choice.logprob > logprob + TIE for choice in others)
        return Score(
            target_logprob=logprob,
            prediction_id=question.target_id if is_first else self._id(top),
            prediction_logprob=logprob if is_first else top.logprob,
            rank=target.rank if target is not None and target.rank is not None else rank,
            extra_logprobs=tuple(extra),
            margin=logprob - others[0].logprob if others else None,
        )

    def _among(self, choices: Sequence[Choice], id: int, text: str) -> Choice | None:
        """The alternative that a target is: its own token, or the longest that it begins with."""
        server_id = self.vocabulary.server_id(id) if id >= 0 else None
        for choice in choices:
            if (choice.id is not None and choice.id == server_id) or choice.text == text:
                return choice
        begun = [
            choice for choice in choices if choice.text.strip() and text.startswith(choice.text)
        ]
        return max(begun, key=lambda choice: len(choice.text), default=None)

    def _logprob(self, position: Position, choice: Choice | None) -> float:
        if choice is not None:
            return choice.logprob
        self.client.count(below_last=1)
        return (position.best or (position.said,))[-1].logprob - _BELOW

    def _id(self, choice: Choice) -> int:
        return self.vocabulary.add_choice(choice)

    def _text_score(self, question: _Question, reply: Reply) -> Score:
        """The verdict on an answer of which only the text is known."""
        assert isinstance(self.vocabulary, Pieces)
        wanted, text = (question.said + question.target).lstrip(), reply.text.lstrip()
        after = text[len(wanted) : len(wanted) + 1]
        is_whole = not (after.isalnum() and wanted[-1:].isalnum())
        if text.startswith(wanted) and is_whole:
            return Score(0.0, question.target_id, rank=1, known=False)
        same = len(question.said.lstrip()) if text.startswith(question.said.lstrip()) else 0
        [*words] = self.vocabulary(text[same:])["input_ids"] or [self.vocabulary.add("")]
        other = next((id for id in words if id != question.target_id), self.vocabulary.add(""))
        return Score(float("-inf"), other, rank=2, known=False)


def _tokens_of(text: str) -> int:
    """How many tokens a text may have, rounded up, so that targets of one answer share requests."""
    return 16 * (1 + len(text.encode()) // 16)


def _wrong(url: str) -> Exception:
    from rationales.errors import RationalesError

    return RationalesError(
        f"{url} answered about another token than the one that was asked for: no result is made of "
        "that; see `rationales endpoint probe`"
    )
