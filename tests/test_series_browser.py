"""The page of series, used in a real browser: Chromium, where there is one.

With NOISEWISE_SCREENSHOTS, pictures of it go to that folder: for a desk and for a phone.
"""

import base64
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_report import NASTY

pytest.importorskip("selenium", reason="driving a browser needs selenium")

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from noisewise.report.charts import Odd, Trace
from noisewise.report.series import series_page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="There is no Chromium here: apt-get install chromium chromium-driver.",
)
SIZES = {"desk": 1200, "phone": 390}
EVIL = f'{NASTY}<img src=x onerror="document.title=1">\x1b[31m</script>'


def series(name, gap, odd=()):
    time = 1.7e9 + 3600.0 * np.arange(2000)
    value = 20 + 5 * np.sin(np.arange(2000) / 4)
    mean = np.full(2000, np.nan)
    mean[gap] = value[gap]
    value[gap] = np.nan
    return Trace(name, time, value, mean, mean - 1, mean + 1, True, noise=1.0, odd=odd)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    time = 1.7e9 + 3600.0 * 1500
    odd = (Odd("stuck", time, time + 360_000.0, 20.0, f"{EVIL} was stuck."),)
    every = [series("attic", slice(0, 5)), series(EVIL, slice(300, 400), odd)]
    every += [series(f"room {k}", slice(100, 110 + k)) for k in range(30)]
    path.write_text(series_page(EVIL, every), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(page):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    found.get(page.as_uri())
    yield found
    found.quit()


def one(browser, selector):
    return browser.find_element(By.CSS_SELECTOR, selector)


def names(browser):
    return [head.text for head in browser.find_elements(By.CSS_SELECTOR, ".chart h3")]


def until(browser, holds):
    WebDriverWait(browser, 20).until(lambda _: holds())


def inked(browser, canvas):
    """Return how many pixels of a chart are drawn."""
    script = """
const canvas = arguments[0], pen = canvas.getContext("2d");
const { data } = pen.getImageData(0, 0, canvas.width, canvas.height);
return data.filter((v, k) => k % 4 == 3 && v).length
"""
    return browser.execute_script(script, canvas)


def test_a_page_is_read_zoomed_and_searched(browser):
    assert "alert" in names(browser)[0]  # the longest gap, and its name is only text
    assert "script" in browser.title
    canvas = one(browser, ".chart canvas")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    until(browser, lambda: inked(browser, canvas) > 1000)
    whole = one(browser, "#shown").text
    ActionChains(browser).move_to_element(canvas).perform()
    until(browser, lambda: one(browser, ".tip").is_displayed())
    assert "read " in one(browser, ".tip").text
    mouse = ActionChains(browser).move_to_element_with_offset(canvas, -100, 0).click_and_hold()
    mouse.move_by_offset(150, 0).release().perform()
    until(browser, lambda: one(browser, "#shown").text != whole)
    ActionChains(browser).double_click(canvas).perform()
    until(browser, lambda: one(browser, "#shown").text == whole)
    canvas.send_keys("+")
    until(browser, lambda: one(browser, "#shown").text != whole)
    browser.execute_script("document.getElementById('whole').click()")
    until(browser, lambda: not one(browser, "#whole").is_enabled())
    one(browser, "#search").send_keys("room 1")
    until(browser, lambda: len(names(browser)) == 11)
    one(browser, "#search").send_keys(" nothing")
    until(browser, lambda: one(browser, "#none").is_displayed())
    one(browser, "#search").clear()
    one(browser, "#search").send_keys(" ")
    one(browser, '#order option[value="name"]').click()
    until(browser, lambda: names(browser)[1:3] == ["attic", "room 0"])


def test_a_link_leads_to_what_is_odd_and_shows_its_time(browser):
    link = one(browser, "a[data-from]")
    browser.execute_script("arguments[0].click()", link)
    until(browser, lambda: one(browser, ".chart:target").is_displayed())
    until(browser, lambda: one(browser, "#shown").text.startswith("12 Jan 2024"))
    tip = ".chart:target .tip"
    ActionChains(browser).move_to_element(one(browser, ".chart:target canvas")).perform()
    until(browser, lambda: "was stuck." in one(browser, tip).text)
    assert browser.find_elements(By.CSS_SELECTOR, ".chart img, .tip img") == []


def widest(browser):
    return browser.execute_script("return document.documentElement.scrollWidth")


def test_nothing_is_wider_than_the_screen_and_nothing_else_runs(browser):
    for size, wide in SIZES.items():
        metrics = {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": wide < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        until(browser, lambda wide=wide: widest(browser) <= wide)
        if folder := os.environ.get("NOISEWISE_SCREENSHOTS"):
            shot = {"captureBeyondViewport": True, "format": "png"}
            found = browser.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
            Path(folder, f"series-{size}.png").write_bytes(base64.b64decode(found))
    told = browser.get_log("browser")  # it also says that reading pixels, as above, is slow
    assert [entry["message"] for entry in told if entry["level"] == "SEVERE"] == []
