"""The page of the service, driven in a real browser: Chromium, where there is one.

With NOISEWISE_SCREENSHOTS, pictures of it go to that folder: for a desk and for a phone.
"""

import base64
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="serving needs the extra serve")
pytest.importorskip("selenium", reason="driving a browser needs selenium")

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from serve_models import TOKEN, readings, save_all, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="There is no Chromium here: apt-get install chromium chromium-driver.",
)
SIZES = {"desk": 1200, "phone": 390}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return save_all(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    found = webdriver.Chrome(options, service)
    yield found
    found.quit()


class Page:
    """What a person does on the page."""

    def __init__(self, browser, server):
        self.browser = browser
        browser.get("about:blank")  # a page before this one may still ask its server, which is gone
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{server.port}/")
        self.fill("token", TOKEN)
        self.press("#token-form button")
        self.until(lambda: "version" in self.text("about"))

    def until(self, holds):
        WebDriverWait(self.browser, 20).until(lambda _: holds())

    def one(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, id):
        return self.one(f"#{id}").text

    def fill(self, id, text):
        self.until(lambda: self.one(f"#{id}").is_displayed())
        self.one(f"#{id}").clear()
        self.one(f"#{id}").send_keys(text)

    def press(self, selector):
        self.until(lambda: self.one(selector).is_enabled())
        self.one(selector).click()

    def look(self, name):
        """Check that nothing is wider than the screen, and keep pictures where they are wanted."""
        for size, wide in SIZES.items():
            metrics = {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": wide < 500}
            self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            script = "return document.documentElement.scrollWidth"
            assert self.browser.execute_script(script) <= wide
            folder = os.environ.get("NOISEWISE_SCREENSHOTS")
            if folder:
                shot = {"captureBeyondViewport": True, "format": "png"}
                found = self.browser.execute_cdp_cmd("Page.captureScreenshot", shot)["data"]
                Path(folder, f"{name}-{size}.png").write_bytes(base64.b64decode(found))
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})

    def complaints(self):
        """What the browser has to say of the page: scripts that failed, policies broken."""
        return [
            entry["message"]
            for entry in self.browser.get_log("browser")
            if entry["level"] == "SEVERE" and "401" not in entry["message"]
        ]


def test_a_person_gets_recommendations_makes_somebody_up_and_sees_who_is_noisy(browser, files):
    with serving(files["bayes"]) as server:
        page = Page(browser, server)
        page.until(lambda: len(page.all("#users option")) == 20)
        page.fill("user", "user07")
        page.press("#known button")
        page.until(lambda: len(page.all("#list tbody tr")) == 10)
        assert len(page.all("#list .reach")) == 30  # a line and two ends each
        page.press("#list tbody tr:nth-child(2) button")
        page.until(lambda: page.all("#why tbody tr"))
        assert "The average would be" in page.text("why")
        page.look("recommendations")
        page.press("#new summary")
        tastes = page.all(".taste")
        for line, item, value in zip(tastes, ("item01", "item02"), ("5", "1"), strict=False):
            fields = line.find_elements(By.TAG_NAME, "input")
            fields[0].send_keys(item)
            fields[1].send_keys(value)
        page.press("#made-up .line button:not([type])")
        page.until(lambda: "somebody who knows 2" in page.text("list"))
        assert len(page.all("#list .dot")) == 10
        page.look("somebody-new")
        page.press("#noise-form button")
        page.until(lambda: len(page.all("#noisy tbody tr")) == 20)
        page.look("noisy")
        page.fill("user", "<img src=x onerror=document.title='owned'>")
        page.press("#known button")
        page.until(lambda: "not known" in page.text("list"))
        assert browser.title == "noisewise"
        assert page.complaints() == []


def test_a_person_drops_a_table_sees_it_filled_and_downloads_it(
    browser, files, tmp_path, downloads
):
    table = readings()
    table["attic"][50] = -40.0
    rows = zip(*table.values(), strict=True)
    lines = [",".join("" if v != v else str(v) for v in row) for row in rows]
    path = tmp_path / "readings.csv"
    path.write_text("\n".join(["time,hall,attic", *lines]))
    with serving(files["imputer"]) as server:
        page = Page(browser, server)
        page.one("#file").send_keys(str(path))
        page.until(lambda: "4 gaps were filled in 1 series" in page.text("filled-told"))
        page.until(lambda: len(page.all("#charts svg")) == 2)
        assert len(page.all("#charts .band")) == 1
        assert len(page.all("#charts .strange")) == 1
        assert "attic read -40" in page.text("odd")
        page.look("filled")
        page.press("#download")
        saved = downloads / "filled.csv"
        for _ in range(100):
            if saved.exists():
                break
            time.sleep(0.1)
        head, *body = saved.read_text().splitlines()
        assert head == "time,hall,attic,hall_std,hall_low,hall_high"
        assert not np.isnan([float(line.split(",")[1]) for line in body]).any()
        page.press("#noise-form button")
        page.until(lambda: len(page.all("#noisy tbody tr")) == 2)
        bad = tmp_path / "bad.csv"
        bad.write_text("a,b\n1,2\n")
        page.one("#file").send_keys(str(bad))
        page.until(lambda: page.one("#problem").is_displayed())
        assert [told for told in page.complaints() if "422" not in told] == []
