"""One column of a table of features as numbers: categories, words, numbers, plain arrays.

What a column holds is found out by its entries:

- lists of words, or text that has fewer different words than different texts (genres): a feature
  for each word;
- other text, and whole numbers of few different values: a feature for each category. Those that are
  rare, or appear later, are one category together;
- other numbers: a smooth curve (B-splines);
- 0 and 1: as they are.

What is missing is a category of its own, where it is not rare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import narwhals as nw
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from noisewise.data.ids import from_frame, is_missing
from noisewise.errors import DataError, DataWarning, shortened, warn

Kind: TypeAlias = Literal["category", "words", "number", "array"]
Tokens: TypeAlias = tuple[str, ...]

FEWEST = 3  # ids that a category or a word needs for a feature of its own
MOST_WHOLE = 30  # different whole numbers that are categories; more are a number
MOST_KNOTS = 6  # of the curve of a number
LARGEST = 1e150  # number, whose square is finite
SEPARATORS = ("|", ";", ",", None)  # of words in a text; None is any white space
OTHER, MISSING = "\0other", "\0missing"  # as no text of a table is
SHOWN = {OTHER: "(other)", MISSING: "(missing)"}


@dataclass(frozen=True)
class Field:
    """How one column becomes features; a plain array may be many columns.

    ``words`` has the categories or words, or the names of the columns of an array; ``knots`` where
    the curve of a number bends, or centre and scale of every column of an array.
    """

    name: str
    kind: Kind
    words: Tokens = ()
    separator: str | None = None
    knots: tuple[float, ...] = ()

    def __len__(self) -> int:
        if self.kind != "number":
            return len(self.words)
        return len(self.knots) + self._degree - 1 + len(self.words)

    @property
    def _degree(self) -> int:
        return min(3, len(self.knots) - 1)

    def encode(self, column: Any) -> Any:
        """Return a sparse matrix, a row for each entry."""
        if self.kind == "array":
            return self._scaled(column)
        if self.kind == "number":
            return self._curve(numbers_of(column, self.name))
        return self._counts(self._tokens(column))

    def levels(self) -> list[tuple[str, Any]]:
        """Return what to say of the field: names of single entries, and these entries encoded."""
        if self.kind != "number":
            names = [SHOWN.get(word, word) for word in self.words]
            return list(zip(names, scipy.sparse.eye_array(len(self), format="csr"), strict=True))
        names = [f"{knot:g}" for knot in self.knots] + [SHOWN[word] for word in self.words]
        missing = [math.nan] * len(self.words)
        return list(zip(names, self._curve(np.array([*self.knots, *missing])), strict=True))

    def _scaled(self, column: Any) -> Any:
        centre, scale = np.array(self.knots).reshape(2, -1)
        if scipy.sparse.issparse(column):
            return (column @ scipy.sparse.diags_array(1.0 / scale)).tocsr()
        array = np.where(np.isnan(column), centre, column)  # what is missing is as usual
        return scipy.sparse.csr_array((array - centre) / scale)

    def _curve(self, column: NDArray[np.float64]) -> Any:
        from sklearn.preprocessing import SplineTransformer

        missing = np.isnan(column)
        knots = np.array(self.knots)[:, None]
        curve = SplineTransformer(
            knots=knots, degree=self._degree, extrapolation="constant", sparse_output=True
        ).fit(knots)
        inside = np.where(missing, knots[0, 0], column)[:, None]
        found = scipy.sparse.diags_array((~missing).astype(float)) @ curve.transform(inside)
        if self.words:
            found = scipy.sparse.hstack([found, scipy.sparse.csr_array(missing[:, None] * 1.0)])
        return scipy.sparse.csr_array(found)

    def _tokens(self, column: Any) -> list[Tokens]:
        if self.kind == "category":
            known, other = set(self.words), (OTHER,)
            return [(t,) if t in known else other for t in categories_of(column, self.name)]
        return [words or (MISSING,) for words in words_of(column, self.separator, self.name)]

    def _counts(self, tokens: Sequence[Tokens]) -> Any:
        from sklearn.feature_extraction.text import CountVectorizer

        counter = CountVectorizer(vocabulary=self.words, analyzer=_as_it_is, binary=True)
        return scipy.sparse.csr_array(counter.transform(tokens).astype(np.float64))


def learn_field(name: str, column: Any) -> Field | None:
    """Find out how a column becomes features; None if it has nothing to tell ids apart by."""
    if getattr(column, "ndim", 1) == 2:
        return _array_field(name, column)
    entries = entries_of(column)
    kinds = {type(entry) for entry in entries if not is_missing_feature(entry)}
    if any(issubclass(kind, list | tuple | set | frozenset | np.ndarray) for kind in kinds):
        return _word_field(name, entries, None)
    if kinds and not any(issubclass(kind, str) for kind in kinds):
        numbers = numbers_of(entries, name)
        found = np.unique(numbers[~np.isnan(numbers)])
        if np.isin(found, [0.0, 1.0]).all():
            return None if len(found) < 2 else Field(name, "array", (name,), None, (0.0, 1.0))
        if len(found) > MOST_WHOLE or (found != np.floor(found)).any():
            return _number_field(name, numbers, found)
    _warn_of_strange_numbers(name, entries)
    texts = categories_of(entries, name)
    for separator in SEPARATORS:
        parted = [list(map(str.strip, text.split(separator))) for text in set(texts)]
        words = {word for parts in parted for word in parts}
        if len(words) < len(parted) and any(len(parts) > 1 for parts in parted):
            return _word_field(name, entries, separator)
    return _category_field(name, texts)


def _warn_of_strange_numbers(name: str, entries: list[Any]) -> None:
    """Warn of a column that would be numbers, but for a few entries that make it categories."""
    numbers, strange = [], []
    for row, entry in enumerate(entries):
        if not is_missing_feature(entry):
            try:
                numbers.append(float(entry))
            except (TypeError, ValueError, OverflowError):
                strange.append(row)
    whole = all(number.is_integer() for number in numbers)
    if not strange or len(numbers) <= len(strange) or (whole and len(set(numbers)) <= MOST_WHOLE):
        return
    warn(
        f"The feature {name!r} is taken to be categories, as row {strange[0]} is "
        f"{shortened(repr(entries[strange[0]]))}; if it is meant to be numbers, leave out what is "
        "none.",
        DataWarning,
    )


def _category_field(name: str, tokens: list[str]) -> Field | None:
    counts = Counter(tokens)
    common = sorted(token for token, n in counts.items() if n >= FEWEST)
    if sum(counts[token] for token in common) <= len(tokens) - FEWEST:
        common.append(OTHER)
    return Field(name, "category", tuple(common)) if len(common) > 1 else None


def _word_field(name: str, entries: list[Any], separator: str | None) -> Field | None:
    found = words_of(entries, separator, name)
    counts = Counter(word for words in found for word in words or (MISSING,))
    common = sorted(word for word, n in counts.items() if FEWEST <= n < len(found))
    return Field(name, "words", tuple(common), separator) if common else None


def _number_field(name: str, column: Any, different: Any) -> Field | None:
    missing = np.isnan(column)
    knots = np.unique(np.quantile(column[~missing], np.linspace(0.0, 1.0, MOST_KNOTS)))
    if len(knots) < 2:  # nearly all are alike: bend where the others are
        knots = np.unique(np.quantile(different, np.linspace(0.0, 1.0, MOST_KNOTS)))
    if len(knots) < 2 or not (np.diff(knots) > 1e-12 * np.abs(knots).max()).all():
        return None
    words = (MISSING,) if missing.sum() >= FEWEST else ()
    return Field(name, "number", words, None, tuple(knots.tolist()))


def _array_field(name: str, array: Any) -> Field | None:
    if scipy.sparse.issparse(array):
        scale = np.abs(array).max(axis=0).toarray().ravel()
        centre = np.zeros_like(scale)
    else:
        array = np.where(np.isnan(array).all(axis=0), 0.0, array)  # of which nothing is known
        centre, scale = np.nanmean(array, axis=0), np.nanstd(array, axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    names = tuple(f"{name}{k}" for k in range(array.shape[1]))
    numbers = tuple(np.concatenate([centre, scale]).tolist())
    return Field(name, "array", names, None, numbers) if names else None


def entries_of(column: Any) -> list[Any]:
    """Return the entries of a column of any library as Python objects."""
    column = from_frame(column)
    if isinstance(column, nw.Series):
        return list(column.to_list())
    return list(column.tolist() if isinstance(column, np.ndarray) else column)


def is_missing_feature(entry: Any) -> bool:
    """Tell what stands for a value that is not known: None, NaN, NaT, an empty text."""
    if isinstance(entry, str):
        return not entry.strip()
    if isinstance(entry, list | tuple | set | frozenset | np.ndarray):
        return False
    return is_missing(entry) and not (isinstance(entry, float) and math.isinf(entry))


def numbers_of(column: Any, name: str) -> NDArray[np.float64]:
    """Return a column as numbers, NaN where it has none; dates are seconds."""
    found = []
    for row, entry in enumerate(entries_of(column)):
        if is_missing_feature(entry):
            found.append(math.nan)
            continue
        try:
            number = float(entry.timestamp() if hasattr(entry, "timestamp") else entry)
        except (TypeError, ValueError, OverflowError):
            number = math.inf
        if not abs(number) <= LARGEST:
            raise DataError(
                f"Row {row} of the feature {name!r} is {shortened(repr(entry))}; the others are "
                "numbers, and this one must be a finite number too, or missing."
            )
        found.append(number)
    return np.array(found, dtype=np.float64)


def categories_of(column: Any, name: str) -> list[str]:
    """Return a column of categories as text; 1, 1.0 and "1" are the same one."""
    return [_word(entry, row, name) for row, entry in enumerate(entries_of(column))]


def words_of(column: Any, separator: str | None, name: str) -> list[Tokens]:
    """Return the words of every entry, each once: of lists, or of text that is split."""
    found = []
    for row, entry in enumerate(entries_of(column)):
        words: Iterable[Any] = ()
        if isinstance(entry, list | tuple | set | frozenset | np.ndarray):
            words = [_word(word, row, name) for word in entry if not is_missing_feature(word)]
        elif not is_missing_feature(entry):
            words = (part.strip() for part in _word(entry, row, name).split(separator))
        found.append(tuple(dict.fromkeys(word for word in words if word)))
    return found


def _word(entry: Any, row: int, name: str) -> str:
    if is_missing_feature(entry):
        return MISSING
    if isinstance(entry, float) and entry.is_integer():
        entry = int(entry)
    if isinstance(entry, list | tuple | set | frozenset | dict | np.ndarray):
        raise DataError(
            f"Row {row} of the feature {name!r} is {shortened(repr(entry))}; the others are single "
            "values, and this one must be one too, or missing."
        )
    return str(entry).strip().replace("\0", "")


def _as_it_is(tokens: Tokens) -> Tokens:
    return tokens
