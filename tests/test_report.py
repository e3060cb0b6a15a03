"""Figures and the page: self-contained, escaped, readable, and kind without matplotlib."""

import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from noisewise.errors import DataError, MissingExtraError, SettingError
from noisewise.report import figures
from noisewise.report.page import Picture, Section, Table, page

VOID = {"meta", "path", "use", "rect", "line", "br", "img", "input"}
NASTY = '<script>alert("&")</script>'


class Elements(HTMLParser):
    """Tags in order, texts, and whether every tag is closed in its turn."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data.strip())

    def named(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def curve(n=6, held_out=True):
    falling = np.linspace(1.0, 0.8, n).tolist()
    return {
        "epoch": list(range(1, n + 1)),
        "train_rmse": falling,
        "train_nll": falling,
        "validation_rmse": falling if held_out else [None] * n,
        "validation_nll": falling if held_out else [None] * n,
        "seconds": [0.1] * n,
    }


def noisy_table(ids=("user1", "user2", "user3")):
    return {
        "id": np.array(ids, dtype=object),
        "noise_std": np.linspace(2.0, 1.0, len(ids)),
        "observations": np.arange(1000, 1000 + len(ids)),
    }


@pytest.fixture(scope="module")
def drawings() -> dict[str, figures.Drawing]:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(3, 1, 500), rng.uniform(0.5, 2, 500)
    truth = rng.normal(mean, std)
    low, high = mean - 1.645 * std, mean + 1.645 * std
    one = (truth, mean, std)
    two = (truth, mean, np.full(500, 1.3))
    return {
        "curves": figures.learning_curves({"one": curve(), "two": curve(9)}),
        "recovery": figures.noise_recovery(std, std * rng.uniform(0.9, 1.1, 500)),
        "calibration": figures.calibration({"one": one, "two": two}),
        "coverage": figures.coverage_by_noise(truth, std, {"one": (low, high)}, 0.9),
        "ids": figures.noisy_ids(noisy_table(), true_std=[1.9, 1.6, 1.1]),
        "fan": figures.interval_fan(truth, mean, low, high),
    }


NAMES = ["curves", "recovery", "calibration", "coverage", "ids", "fan"]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_becomes_an_svg_element_without_links(drawings, name):
    svg = drawings[name].svg()
    assert svg.startswith("<svg")
    assert svg.rstrip().endswith("</svg>")
    assert "http" not in svg
    assert Elements(svg).named("text")  # text stays text


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_takes_the_colours_of_the_page(drawings, name):
    svg = drawings[name].svg()
    assert "currentColor" in svg
    assert "#23272f" not in svg
    assert not re.search(r"fill: #ffffff", svg)  # no white background in a dark page


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_says_in_words_what_it_shows(drawings, name):
    assert re.search(r"\d", drawings[name].alt)
    assert drawings[name].alt.endswith(".")


def test_a_figure_has_the_same_bits_every_time(drawings):
    for kind in ("png", "svg"):
        assert figures.render(drawings["fan"], kind) == figures.render(drawings["fan"], kind)


def test_svg_file_stands_alone(drawings):
    text = figures.render(drawings["ids"], "svg").decode()
    assert 'xmlns="http://www.w3.org/2000/svg"' in text


def test_figures_side_by_side_are_one_picture(drawings):
    together = figures.side_by_side("All of it", list(drawings.values()))
    assert figures.render(together, "png").startswith(b"\x89PNG\r\n")
    texts = Elements(together.svg()).texts
    assert "All of it" in texts
    assert "user3" in texts
    for drawing in drawings.values():
        assert drawing.alt in together.alt


def test_unknown_kind_of_file_is_refused(drawings):
    with pytest.raises(SettingError, match="'png' or 'svg'; got 'jpeg'"):
        figures.render(drawings["ids"], "jpeg")


def test_recovery_tells_the_correlation():
    drawing = figures.noise_recovery([1.0, 2.0, 3.0], [1.1, 1.9, 3.0])
    correlation = np.corrcoef([1.0, 2.0, 3.0], [1.1, 1.9, 3.0])[0, 1]
    assert f"correlation {correlation:.3f}" in drawing.alt
    assert f"Noise of cells: correlation {correlation:.3f}" in Elements(drawing.svg()).texts


def test_recovery_of_a_constant_std_has_no_correlation():
    drawing = figures.noise_recovery([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    assert "Noise of cells: one std for all" in Elements(drawing.svg()).texts


def test_coverage_is_counted_group_by_group():
    truth, noise = np.zeros(8), np.arange(1.0, 9.0)
    low = np.array([-1, -1, -1, -1, 1, 1, 1, -1])
    drawing = figures.coverage_by_noise(truth, noise, {"mine": (low, low + 2)}, 0.9, groups=2)
    assert "mine 100% and 25%" in drawing.alt


def test_fan_counts_values_inside_their_interval():
    drawing = figures.interval_fan([0, 0, 5], [0, 0, 0], [-1, -2, -3], [1, 2, 3])
    assert "2 of 3 values lie in their interval" in Elements(drawing.svg()).texts


def test_fan_draws_no_more_cells_than_asked():
    columns = np.zeros((4, 1000)) + np.array([[0], [0], [-1], [1]])
    assert "Intervals of 50 cells" in figures.interval_fan(*columns, n=50).alt


def test_learning_curves_are_of_held_out_data_if_there_is_some():
    texts = Elements(figures.learning_curves({"a": curve()}).svg()).texts
    assert "RMSE on held-out data" in texts


def test_learning_curves_without_held_out_data_are_of_training():
    mixed = {"a": curve(), "b": curve(held_out=False)}
    assert "RMSE on training data" in Elements(figures.learning_curves(mixed).svg()).texts


@pytest.mark.parametrize("label", [NASTY, "$x_{1$", "a & b", "日本語", "two\nlines", 17, ("a", 1)])
def test_any_id_can_be_drawn(label):
    svg = figures.noisy_ids(noisy_table([label, "plain"])).svg()
    elements = Elements(svg)
    assert not elements.named("script")
    (shown,) = [text for text in elements.texts if text[:5] == figures.short(str(label), 18)[:5]]
    assert len(shown) <= 18
    assert "\n" not in shown


def test_ids_come_with_their_number_of_observations():
    texts = Elements(figures.noisy_ids(noisy_table(), unit="readings").svg()).texts
    assert {"1,000 readings", "1,001", "1,002"} <= set(texts)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: figures.noise_recovery([1.0, 2.0], [1.0]),
        lambda: figures.noise_recovery([1.0], [1.0]),
        lambda: figures.interval_fan([[1.0]], [[1.0]], [[1.0]], [[1.0]]),
        lambda: figures.coverage_by_noise([1.0, 2.0], [1.0, 2.0], {"a": ([1.0], [2.0])}, 0.9),
        lambda: figures.learning_curves({}),
        lambda: figures.learning_curves({name: curve() for name in "abcde"}),
        lambda: figures.noisy_ids(noisy_table([])),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw):
    with pytest.raises(DataError, match="got"):
        draw()


def test_without_matplotlib_the_pip_line_is_given(monkeypatch, drawings):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'noisewise[plot]'")):
        drawings["ids"].svg()
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'noisewise[plot]'")):
        figures.render(drawings["ids"], "png")


def test_drawing_leaves_pyplot_alone_and_settings_as_they_were():
    program = """
import sys
from noisewise.report import figures
assert "matplotlib" not in sys.modules
drawing = figures.noise_recovery([1, 2, 3], [1, 2, 3])
import matplotlib
before = {name: matplotlib.rcParams[name] for name in figures.STYLE}
figures.render(drawing, "png")
assert before == {name: matplotlib.rcParams[name] for name in figures.STYLE}
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def whole_page(drawings):
    pictures = [Picture(d.svg(), d.alt, "A caption") for d in drawings.values()]
    table = Table(["model", "RMSE"], [["mine", "0.82"], ["theirs", "0.84"]], "Lower is better")
    sections = [Section("First", ["A paragraph.", table]), Section("Second", pictures)]
    return page("A page", sections, lead="Lead.", foot="Foot.")


def test_page_is_well_formed_and_needs_nothing_else(drawings):
    html = whole_page(drawings)
    elements = Elements(html)
    assert not re.search(r"https?://|@import|url\(['\"]?[^#'\"]", html)
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in elements.tags}
    for tag, attrs in elements.tags:
        for name, value in attrs.items():
            assert not name.startswith("on"), f"{tag} has a handler"
            if name in ("href", "xlink:href", "src"):
                assert value.startswith("#")


def test_page_has_one_heading_and_one_per_section(drawings):
    headings = [tag for tag, _ in Elements(whole_page(drawings)).tags if tag in ("h1", "h2", "h3")]
    assert headings == ["h1", "h2", "h2"]


def test_page_names_its_language_and_fits_a_phone(drawings):
    elements = Elements(whole_page(drawings))
    assert elements.named("html") == [{"lang": "en"}]
    assert any("width=device-width" in (m.get("content") or "") for m in elements.named("meta"))


def test_every_picture_of_the_page_has_a_text(drawings):
    labels = [svg["aria-label"] for svg in Elements(whole_page(drawings)).named("svg")]
    assert labels == [drawing.alt for drawing in drawings.values()]


def test_ids_of_elements_are_not_defined_twice_with_different_content(drawings):
    html = whole_page(drawings)
    defined: dict[str, set[str]] = {}
    for id, content in re.findall(r'<(?:path|clipPath) id="([^"]+)"(.*?)>', html, re.DOTALL):
        defined.setdefault(id, set()).add(content)
    assert defined
    assert all(len(contents) == 1 for contents in defined.values())
    others = re.findall(r'<(?!path|clipPath)\w+ id="([^"]+)"', html)
    assert len(others) == len(set(others))


def test_numbers_of_a_table_are_cells_and_names_are_headings(drawings):
    html = whole_page(drawings)
    assert '<th scope="row">mine</th><td>0.82</td>' in html
    assert '<th scope="col">RMSE</th>' in html
    assert re.search(r"td, th \{[^}]*text-align: right", html)


def test_all_text_of_the_page_is_escaped():
    nasty = [
        NASTY,
        Table([NASTY, NASTY], [[NASTY, NASTY]], NASTY),
        Picture("<svg></svg>", NASTY, NASTY),
    ]
    html = page(NASTY, [Section(NASTY, nasty)], lead=NASTY, foot=NASTY)
    elements = Elements(html)
    assert not elements.named("script")
    assert elements.texts.count(NASTY) == 12  # title, heading, lead, section, ..., foot
    assert elements.named("svg") == [{"role": "img", "aria-label": NASTY}]


def test_a_page_may_be_bare():
    elements = Elements(page("Bare", []))
    assert not elements.named("p")
    assert not elements.named("footer")
