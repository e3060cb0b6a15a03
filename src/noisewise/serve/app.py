"""The service: what can be asked at which address, as FastAPI knows it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from noisewise.errors import NoisewiseError, printable
from noisewise.serve import answers, readings, schemas
from noisewise.serve.answers import Refused, Served
from noisewise.serve.guard import Guard
from noisewise.serve.limits import Bearer, Buckets
from noisewise.serve.meters import TYPE
from noisewise.serve.state import State

ABOUT = (
    "A fitted noisewise model. Every answer names the version of the model that it is from, and is "
    "wholly of that one. Errors are one sentence in `error`."
)
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
PROBLEMS = {
    400: "The body is no JSON.",
    401: "No token, or a wrong one.",
    408: "The request came too slowly.",
    409: "The model that is served has no such thing.",
    413: "The request is too large.",
    421: "Called by a foreign name.",
    422: "What was asked makes no sense; the sentence says why.",
    429: "Too many requests.",
    503: "Too much is going on.",
}


@dataclass(frozen=True)
class Route:
    """Something that a model can be asked."""

    name: str
    asked: type
    answer: type
    question: answers.Asked
    is_long: bool = False


ROUTES = (
    Route("predict", schemas.Cells, schemas.Predicted, answers.predict),
    Route("interval", schemas.CellsWithin, schemas.Interval, answers.interval),
    Route("recommend", schemas.Lists, schemas.Listed, answers.recommend),
    Route("fold_in", schemas.NewRow, schemas.FoldedIn, answers.fold_in),
    Route("explain", schemas.Cell, schemas.Explained, answers.explain),
    Route("noise", schemas.Noisy, schemas.Table, answers.noisy, is_long=True),
    Route("impute", schemas.Holes, schemas.Filled, readings.impute, is_long=True),
    Route("forecast", schemas.Ahead, schemas.Forecast, readings.forecast, is_long=True),
    Route("anomalies", schemas.Odd, schemas.Table, readings.anomalies, is_long=True),
)


def create_app(state: State, bearer: Bearer | None = None, buckets: Buckets | None = None) -> Guard:
    """Return the service as an ASGI application.

    Parameters
    ----------
    state : State
        The model, and what is counted of requests.
    bearer : Bearer, optional
        The token that clients must send; none by default, and then only names of this machine are
        answered to.
    buckets : Buckets, optional
        How often clients may ask; as often as they like by default.
    """

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        state.start()
        yield
        state.stop()

    app = FastAPI(
        title="noisewise", version=version("noisewise"), description=ABOUT, lifespan=lifespan,
        docs_url=None, redoc_url=None,
    )  # fmt: skip
    problems = {
        status: {"model": schemas.Problem, "description": told} for status, told in PROBLEMS.items()
    }
    for route in ROUTES:
        app.add_api_route(
            f"/v1/{route.name}", _endpoint(state, route), methods=["POST"], name=route.name,
            operation_id=route.name, summary=str(route.question.__doc__).splitlines()[0],
            response_model=route.answer, responses=problems, tags=["model"],
        )  # fmt: skip
    _add_rest(app, state, problems)
    app.add_exception_handler(NoisewiseError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)
    return Guard(
        app,
        limits=state.limits,
        bearer=bearer or Bearer(None),
        buckets=buckets or Buckets(state.limits.rate, state.limits.burst),
        meters=state.meters,
    )


def _endpoint(state: State, route: Route) -> Callable[..., Any]:
    """Return what answers the requests of a route."""

    async def endpoint(asked: Any) -> Response:
        def question(served: Served) -> dict[str, Any]:
            served.need(route.name)
            return route.question(served, asked)

        return _told(*await state.ask(route.name, question, is_long=route.is_long))

    endpoint.__annotations__ = {"asked": route.asked, "return": Response}
    return endpoint


def _told(answer: dict[str, Any], digest: str, seconds: float) -> Response:
    """Return an answer, with its version and the time spent in the model as headers."""
    timing = f"model;dur={1000 * seconds:.3f}"
    return _json(answer, headers={"X-Noisewise-Model": digest, "Server-Timing": timing})


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # ASCII alone: text that came in with halves of surrogates can be sent back.
    body = json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")
    return Response(body, status, headers, "application/json")


def _add_rest(app: Any, state: State, problems: dict[int, Any]) -> None:
    """Add what is not asked of the model: what it is, how the server is, and the page."""
    Text = Annotated[str, Query(max_length=200, description="Letters that ids have in them.")]
    Many = Annotated[int, Query(ge=1, le=1000)]
    Mode = Annotated[str, Query(max_length=1000, description="By number from 0, or by name.")]

    async def find(mode: Mode = "0", like: Text = "", n: Many = 20) -> Response:
        return _told(*await state.ask("ids", lambda served: answers.find(served, mode, like, n)))

    async def about() -> Response:
        def question(served: Served) -> dict[str, Any]:
            facts = {"loaded": _moment(state.since), "reload_error": state.reload_error}
            return answers.about(served) | facts

        return _told(*await state.ask("model", question))

    async def health() -> Response:
        return _json({"status": "alive"})

    async def ready() -> Response:
        reload = "failed" if state.reload_error else "done"
        facts = {"status": "ready", "model": state.served.loaded.digest, "reload": reload}
        return _json(facts)

    async def metrics() -> Response:
        return Response(state.meters.text(), media_type=TYPE)

    find.__annotations__ = {"mode": Mode, "like": Text, "n": Many, "return": Response}
    add = app.add_api_route
    add("/v1/ids", find, name="ids", operation_id="ids", response_model=schemas.Found,
        responses=problems, tags=["model"], summary="Find ids of the model.")  # fmt: skip
    add("/v1/model", about, name="model", operation_id="model", response_model=schemas.About,
        responses=problems, tags=["model"], summary="Say what is served.")  # fmt: skip
    for path, answer, words in (
        ("/health", health, "Say that the server is alive."),
        ("/ready", ready, "Say which version of the model is served."),
        ("/metrics", metrics, "Counts and times, as Prometheus reads them."),
    ):
        add(path, answer, name=path[1:], tags=["server"], summary=words)
    for path, (name, kind) in PAGE.items():
        add(path, _file(name, kind), include_in_schema=False, name="page")


def _file(name: str, kind: str) -> Callable[..., Any]:
    content = resources.files("noisewise.serve").joinpath("page", name).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=kind)

    page.__annotations__ = {"return": Response}
    return page


def _moment(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, Refused):
        return _json({"error": str(error)}, error.status, error.headers)
    status = 409 if isinstance(error, ImportError) else 422
    return _json({"error": str(error)}, status)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = error.errors()
    words = [_fault(one) for one in found[:3]]
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    return _json({"error": printable("; ".join(words)) + more}, 422)


def _fault(one: Any) -> str:
    """Say where in a request something is wrong, and what."""
    if len(one["loc"]) < 2:
        return "The body must be a JSON object, sent with Content-Type: application/json"
    return f"{'.'.join(map(str, one['loc'][1:]))[:100]}: {one['msg'][:200]}"


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return _json({"error": printable(str(error.detail))}, error.status_code, headers)


async def _failed(request: Request, error: Exception) -> Response:
    number = getattr(request.state, "number", "")
    return _json({"error": f"Something went wrong here; the log says what, at {number}."}, 500)
