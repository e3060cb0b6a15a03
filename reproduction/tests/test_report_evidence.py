"""The page of evidence: verdicts as they are defined, the paper's numbers, and nothing to load."""

import json
import re

import pytest
from noisewise_reproduction.claims import claims, paper, verdicts
from noisewise_reproduction.page.evidence import evidence_page, read_artefacts, report
from noisewise_reproduction.page.evidence_figures import drawings
from noisewise_reproduction.page.evidence_tables import NOTHING
from noisewise_reproduction.page.lines import Dot, Line, dots, panels
from test_report import Elements

from noisewise.errors import DataError

MACHINE = {"cpu": "a chip", "cores": 2, "python": "3.12"}


def an_artefact(name, *, quick=False, models=(), **body):
    return {
        "artefact": name,
        "quick": quick,
        "splits": 5,
        "models": {
            label: {"title": f"the {label}", "model": label, "changed": {"rank": 8}, "chosen": "so"}
            for label in models
        },
        "left_out": [],
        "adopted": [],
        "machines": [MACHINE],
        "dates": ["2026-01-01"],
        "noisewise": "0",
        **body,
    }


def a_summary(model, mean, low, high, metric="rmse", dataset="ml1m", **more):
    return {
        "dataset": dataset,
        "model": model,
        "splits": 5,
        "mean": {metric: mean},
        "interval95": {metric: [low, high]},
        **more,
    }


def a_test(a, b, difference, p, dataset="ml1m", **more):
    return {
        "dataset": dataset, "a": a, "b": b, "metric": "rmse", "difference": difference,
        "low": difference - 0.001, "high": difference + 0.001, "wins": 5, "n": 5,
        "t_pvalue": p, "t_pvalue_holm": p, "wilcoxon_pvalue": 0.0625,
        "wilcoxon_pvalue_holm": 0.125, **more,
    }  # fmt: skip


def the_ratings(quick=False, difference=-0.002, p=0.001):
    summary = [
        a_summary("biased-mf", 0.836, 0.833, 0.839),
        a_summary("dmf-paper", 0.842, 0.840, 0.844),
        a_summary("rcf", 0.880, 0.875, 0.885),
        a_summary("bayes", 0.81, None, None),
    ]
    tests = [a_test("dmf-paper", "biased-mf", difference, p), a_test("rcf", "biased-mf", 0.04, p)]
    models = ["biased-mf", "dmf-paper", "rcf", "bayes"]
    return an_artefact("ratings", quick=quick, models=models, summary=summary, tests=tests, rows=[])


def verdict(artefacts, name):
    return next(one for one in claims.judge(artefacts) if one.name == name)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.830, 0.837, "better"),
        (0.830, 0.838, "reproduced"),
        (0.844, 0.850, "reproduced"),
        (0.8441, 0.850, "not reproduced"),
        (None, None, "not judged"),
    ],
)
def test_a_number_is_judged_by_whether_intervals_overlap(low, high, expected):
    assert verdicts.of_interval(low, high, 0.841, 0.003) == expected


def test_the_numbers_of_the_paper_are_in_one_file():
    table = paper.paper()["ratings"]
    assert table["ml1m"]["dmf-paper"] == 0.841
    assert table["netflix"]["dmf-paper"] == 0.806
    assert {len(table[name]) for name in ("ml1m", "ml10m", "netflix")} == {7}
    assert paper.rmse("ml1m", "dmf-paper") == (0.841, 0.003)
    assert paper.rmse("ml1m", "bayes") is None
    assert paper.amount("epochs", "biased-mf") == pytest.approx(98.6, abs=0.1)
    assert paper.ratio("seconds", "dmf") is None


def test_every_claim_has_a_function_and_every_function_a_claim():
    assert set(claims.CLAIMS) == set(paper.paper()["claims"])


def test_without_results_no_claim_is_judged():
    judged = claims.judge({"datasets": an_artefact("datasets", rows=[])})
    assert {one.verdict for one in judged} == {"not measured"}
    assert all(one.rule and one.claim and one.paper for one in judged)


@pytest.mark.parametrize(
    ("difference", "p", "expected"),
    [
        (-0.002, 0.001, "reproduced"),
        (-0.002, 0.2, "not reproduced"),
        (0.002, 0.001, "not reproduced"),
        (-0.002, None, "not judged"),
    ],
)
def test_dmf_beats_biased_mf_only_by_a_corrected_test(difference, p, expected):
    found = verdict({"ratings": the_ratings(difference=difference, p=p)}, "dmf_beats_biased_mf")
    assert found.verdict == expected
    assert f"{difference:+.4f}" in found.number


def test_a_quick_run_judges_nothing():
    judged = claims.judge({"ratings": the_ratings(quick=True)})
    assert {one.verdict for one in judged} == {"not judged", "not measured"}
    html = evidence_page({"ratings": the_ratings(quick=True)})
    assert "A quick run" in html
    assert "<td>better</td>" not in html


def sensor_tests(**differences):
    return an_artefact(
        "sensors",
        rows=[],
        summary=[],
        tests=[
            a_test(
                "dtf", "ptf", value, 0.001, "london", protocol="cells", share=int(share[1:]) / 100
            )
            for share, value in differences.items()
        ],
    )


def test_dtf_may_lose_at_the_sparsest_share_only():
    won = {"sensors": sensor_tests(s5=0.02, s10=-0.01, s20=-0.01)}
    lost = {"sensors": sensor_tests(s5=-0.02, s10=0.01, s20=-0.01)}
    assert verdict(won, "dtf_beats_ptf").verdict == "reproduced"
    assert verdict(lost, "dtf_beats_ptf").verdict == "not reproduced"
    assert "lower in 2 of 2 settings" in verdict(won, "dtf_beats_ptf").number
    assert verdict(won, "dtf_beats_the_others").verdict == "not measured"


def small(**experiments):
    found = {}
    for name, numbers in experiments.items():
        found[name.replace("_", " ")] = {
            "repeats": [{}],
            "mean": {k: v[0] for k, v in numbers.items()},
            "interval95": {k: list(v[1:]) for k, v in numbers.items()},
        }
    nothing = {"rows": [], "summary": []}
    return {"claims": an_artefact("claims", zeros=nothing, rounds=nothing, small=found)}


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        ((1.5, 1.4, 1.6), "reproduced"),
        ((1.2, 1.1, 1.3), "better"),
        ((1.9, 1.8, 2.0), "not reproduced"),
        ((1.9, None, None), "not judged"),
    ],
)
def test_the_cost_of_a_third_mode_is_judged_by_its_interval(ratio, expected):
    artefacts = small(cost_of_modes={"ratio": ratio})
    assert verdict(artefacts, "dtf_costs_half_as_much_again").verdict == expected


@pytest.mark.parametrize(("exponent", "expected"), [(0.9, "reproduced"), (1.2, "not reproduced")])
def test_cost_is_linear_up_to_an_exponent(exponent, expected):
    artefacts = small(cost_of_rank={"exponent": (exponent, 0.8, 1.3)})
    assert verdict(artefacts, "linear_in_rank").verdict == expected


@pytest.mark.parametrize(
    ("level", "spread", "expected"),
    [
        (0.02, 0.05, "reproduced"),
        (0.02, 5.0, "not reproduced"),
        (0.3, 0.05, "not reproduced"),
    ],
)
def test_clean_data_must_leave_a_deviation_that_is_shared_and_near_zero(level, spread, expected):
    artefacts = small(
        clean_data={
            "without noise: level": (level, 0, 1),
            "without noise: spread": (spread, 0, 1),
            "with noise: level": (0.6, 0, 1),
        }
    )
    assert verdict(artefacts, "clean_data_have_no_deviation").verdict == expected


def test_a_gain_without_uneven_noise_speaks_against_the_claim():
    artefacts = {"ratings": the_ratings()}
    name = "the same noise everywhere: difference"
    nothing = artefacts | small(equal_noise={name: (0.0, -0.001, 0.001)})
    gained = artefacts | small(equal_noise={name: (-0.01, -0.02, -0.005)})
    assert verdict(nothing, "helps_on_clean_data").verdict == "reproduced"
    assert verdict(gained, "helps_on_clean_data").verdict == "not reproduced"


def the_rounds(train, held_out):
    numbers = {"train_rmse_rose": train, "validation_rmse_rose": held_out, "steps": 6.0}
    row = {"dataset": "ml1m", "model": "drmf-10", "splits": 5, "mean": numbers}
    row["interval95"] = {key: [None, None] for key in numbers}
    nothing = {"rows": [], "summary": []}
    artefact = an_artefact("claims", zeros=nothing, rounds={"rows": [], "summary": [row]}, small={})
    return {"claims": artefact}


@pytest.mark.parametrize(
    ("train", "held_out", "expected"),
    [(1.0, 0.9, "reproduced"), (0.1, 1.0, "not reproduced")],
)
def test_drmf_gets_worse_if_both_errors_rise(train, held_out, expected):
    assert verdict(the_rounds(train, held_out), "drmf_gets_worse").verdict == expected


@pytest.fixture
def html():
    return evidence_page({"ratings": the_ratings()})


def cells_of(html, name):
    row = re.search(rf'<th scope="row">{re.escape(name)}</th>(.*?)</tr>', html).group(1)
    return re.findall(r"<td>(.*?)</td>", row)


def test_a_row_has_the_papers_number_ours_the_interval_and_the_verdict(html):
    expected = ["0.845 ± 0.003", "0.8360", "0.8330 to 0.8390", "5", "better"]
    assert cells_of(html, "the biased-mf") == expected
    assert cells_of(html, "the dmf-paper")[-1] == "reproduced"
    assert cells_of(html, "the rcf")[-1] == "not reproduced"
    assert cells_of(html, "the bayes") == [NOTHING, "0.8100", NOTHING, "5", "not in the paper"]


def test_what_was_not_measured_is_named_with_the_papers_number(html):
    assert cells_of(html, "autorec")[0] == "0.831 ± 0.003"
    assert cells_of(html, "autorec")[-1] == "not measured"
    assert "Netflix was not measured" in html


def test_tests_stand_with_and_without_correction(html):
    cells = cells_of(html, "the rcf minus the biased-mf (ml1m)")
    assert cells[0] == "+0.0400"
    assert cells[-2:] == ["0.001 (0.001)", "0.062 (0.12)"]


def test_the_page_says_how_where_and_when(html):
    assert cells_of(html, "the bayes")  # the first of several rows
    assert "rank = 8" in html
    assert "a chip, 2 cores, Python 3.12" in html
    assert "2026-01-01" in html


def test_the_page_is_well_formed_and_needs_nothing_else(html):
    elements = Elements(html)
    assert not re.search(r"https?://|@import|url\(['\"]?[^#'\"]", html)
    assert not {"script", "link", "iframe", "img", "object"} & {tag for tag, _ in elements.tags}
    assert any("width=device-width" in (m.get("content") or "") for m in elements.named("meta"))
    assert "prefers-color-scheme: dark" in html
    assert "@media print" in html


def test_all_text_of_the_page_is_escaped():
    artefact = the_ratings()
    artefact["models"]["bayes"]["title"] = "<script>alert(1)</script>"
    assert not Elements(evidence_page({"ratings": artefact})).named("script")


def test_the_page_is_written_from_files_alone(tmp_path):
    (tmp_path / "ratings.json").write_text(json.dumps(the_ratings()))
    path = report(tmp_path, tmp_path / "deep" / "page.html")
    assert path.read_text() == evidence_page({"ratings": the_ratings()})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "must hold results as JSON"),
        ("[]", "is no result of `noisewise reproduce time`"),
        (json.dumps(the_ratings()), "is no result of `noisewise reproduce time`"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, content, message):
    (tmp_path / "time.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_artefacts(tmp_path)


def test_an_empty_folder_is_refused_with_the_fix(tmp_path):
    with pytest.raises(DataError, match="noisewise reproduce all --out"):
        read_artefacts(tmp_path)


def test_dots_say_in_words_what_they_show():
    rows = [Dot("one", 0.8, 0.7, 0.9, 0.85), Dot("two", 0.5)]
    drawing = dots("Errors", rows, unit="RMSE", mark="the paper")
    assert drawing.alt == "Errors, RMSE: one 0.8 (the paper 0.85), two 0.5."
    texts = Elements(drawing.svg()).texts
    assert {"one", "two", "here", "the paper"} <= set(texts)


def test_a_line_looks_the_same_in_every_panel():
    one, two = Line("a", [1, 2], [3.0, 4.0]), Line("b", [1, 2], [5.0, 6.0])
    svg = panels(["P", "Q"], [[one, two], [two]], x=["t", "t"], y="MSE").svg()
    texts = Elements(svg).texts
    assert texts.count("b") == 1
    assert {"P", "Q", "a"} <= set(texts)


def test_an_item_without_numbers_has_no_figure():
    assert drawings(an_artefact("ratings") | {"machines": []}) == {}
