"""What requests and answers look like, for people and programs that read the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr

Id = Annotated[
    Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
    | Annotated[StrictFloat, Field(allow_inf_nan=False)]
    | Annotated[StrictStr, Field(max_length=1000)],
    Field(description="An id as it was trained on; where ids are numbers, text of one will do."),
]
Number = Annotated[float, Field(allow_inf_nan=False)]
Coverage = Annotated[
    float, Field(0.9, gt=0.0, lt=1.0, description="Share of values that intervals hold.")
]
Mode = Annotated[
    StrictInt | StrictStr,
    Field(description="The mode by number from 0 (users) or by the name of its column."),
]
Many = Annotated[int, Field(ge=1, le=1000)]


class Question(BaseModel):
    """A request; a field that is not known is refused, as it would do nothing."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


class Cells(Question):
    """Cells to predict."""

    cells: Annotated[
        list[Annotated[list[Id], Field(min_length=2, max_length=16)]],
        Field(min_length=1, description="One id for each mode: a user and an item, say."),
    ]
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"cells": [["ann", "Alien"], ["bob", "Brazil"]]}]},
    )


class CellsWithin(Cells):
    """Cells to predict intervals of."""

    coverage: Coverage = 0.9
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"cells": [["ann", "Alien"]], "coverage": 0.8}]},
    )


class Wishes(Question):
    """What lists should hold."""

    n: Annotated[Many, Field(description="How many.")] = 10
    by: Annotated[
        Literal["value", "utility"],
        Field(description="Rank by the value expected, or by the chance to be taken and liked."),
    ] = "value"
    risk: Annotated[
        Number, Field(ge=-100, le=100, description="Rank by mean minus risk times std.")
    ] = 0.0
    exclude_seen: Annotated[bool, Field(description="Leave out what the id was trained with.")] = (
        True
    )
    candidates: Annotated[list[Id] | None, Field(min_length=1, description="Rank only these.")] = (
        None
    )
    coverage: Coverage = 0.9
    mode: Mode = 0


class Lists(Wishes):
    """Whom to recommend to."""

    ids: Annotated[list[Id], Field(min_length=1)]
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"ids": ["ann"], "n": 5}]}
    )


class NewRow(Wishes):
    """A new id, by its values with known ones."""

    others: Annotated[list[Id], Field(min_length=1, description="What it was seen with.")]
    values: Annotated[list[Number], Field(min_length=1, description="A value for each.")]
    predict: Annotated[
        list[Id] | None, Field(min_length=1, description="Also predict the value with these.")
    ] = None
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"others": ["Alien", "Brazil"], "values": [5, 2], "n": 3}]},
    )


class Cell(Question):
    """A prediction to explain."""

    user: Id
    item: Id
    n: Annotated[Many, Field(description="How many of the user's values to list.")] = 10
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"user": "ann", "item": "Brazil", "n": 3}]},
    )


class Noisy(Question):
    """Who is noisy."""

    mode: Mode = 0
    n: Annotated[Many, Field(description="How many to list, the noisiest first.")] = 20
    fewest: Annotated[
        int, Field(ge=1, le=2**53, description="Leave out what has fewer observations.")
    ] = 5
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"mode": 0, "n": 10}]}
    )


TABLE: dict[str, Any] = {
    "columns": {"time": ["2026-01-01T00:00", "2026-01-01T01:00"], "hall": [20.5, None]}
}


class Readings(Question):
    """A table of readings, in one of three ways."""

    columns: Annotated[
        dict[
            Annotated[str, Field(max_length=1000)],
            list[Annotated[StrictInt | StrictFloat | StrictStr | None, Field()]],
        ]
        | None,
        Field(min_length=1, description="By name; null is a hole, and times are numbers or ISO."),
    ] = None
    rows: Annotated[
        list[list[Number | None]] | None,
        Field(min_length=1, description="A table without names, for imputers fitted to arrays."),
    ] = None
    csv: Annotated[
        str | None, Field(min_length=1, description="Text of a CSV or TSV file, as loggers write.")
    ] = None


class Holes(Readings):
    """A table whose holes are to be filled."""

    coverage: Coverage = 0.9
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [TABLE | {"coverage": 0.8}]}
    )


class Ahead(Readings):
    """The last rows of a table, and how many rows to expect after them."""

    steps: Annotated[
        int, Field(ge=1, le=10_000, description="Rows, at the usual distance of the table.")
    ]
    coverage: Coverage = 0.9
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [TABLE | {"steps": 24}]}
    )


class Odd(Readings):
    """A table to look for odd readings in; without one, those that were learned from."""

    probability: Annotated[
        float, Field(gt=0.0, le=1.0, description="From which on a single reading is listed.")
    ] = 0.5
    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [TABLE | {"probability": 0.9}]}
    )


class Answer(BaseModel):
    """What every answer has."""

    model: Annotated[str, Field(description="Which version of the model has answered.")]
    warnings: list[str] = []


class Predicted(Answer):
    """Predictions, in the order of the cells."""

    mean: list[float]
    std: list[float]
    noise_std: Annotated[list[float], Field(description="The part that stays with more data.")]
    epistemic_std: Annotated[list[float], Field(description="The part that more data shrink.")]


class Interval(Answer):
    """Intervals, in the order of the cells."""

    mean: list[float]
    low: list[float]
    high: list[float]
    coverage: float


class Recommended(BaseModel):
    """What is recommended, best first."""

    id: Any
    mean: float
    std: float
    low: float
    high: float


class List(BaseModel):
    """What is recommended to an id."""

    id: Any
    known: Annotated[bool, Field(description="Whether it was trained on.")]
    items: list[Recommended]


class Listed(Answer):
    """Lists in the order of the ids."""

    lists: list[List]
    coverage: float


class FoldedIn(Answer):
    """What is recommended to a new id, and predicted for it."""

    items: list[Recommended]
    predicted: list[Recommended] | None = None
    coverage: float


class Pull(BaseModel):
    """What one of a user's own values adds to a prediction."""

    id: Any
    value: float
    pull: float
    std: float
    sure: float
    by_value: float
    by_choice: float


class Explained(Answer):
    """Why a prediction is what it is: mean = average + pulls + rest."""

    mean: float
    std: float
    average: float
    pulls: list[Pull]
    rest: float


class Table(Answer):
    """A table by its columns."""

    columns: dict[str, list[Any]]


class Filled(Answer):
    """A table without holes, what is known of them, and which rows they are in."""

    columns: dict[str, list[Any]]
    std: dict[str, list[float | None]]
    low: dict[str, list[float | None]]
    high: dict[str, list[float | None]]
    holes: dict[str, list[int]]
    coverage: float


class Forecast(Answer):
    """The rows that come next, by their columns: what to expect, its std, and intervals."""

    columns: dict[str, list[Any]]
    std: dict[str, list[float | None]]
    low: dict[str, list[float | None]]
    high: dict[str, list[float | None]]
    coverage: float


class Found(Answer):
    """Ids that match."""

    mode: str
    ids: list[Any]
    total: Annotated[int, Field(description="How many ids the mode has.")]


class About(Answer):
    """What is served."""

    kind: Literal["ratings", "sensors", "imputer"]
    name: str
    modes: list[dict[str, Any]]
    endpoints: list[str]
    value_range: list[float] | None = None
    loaded: str
    reload_error: str | None = None
    settings: dict[str, Any]


class Problem(BaseModel):
    """What is wrong, in a sentence."""

    error: str
