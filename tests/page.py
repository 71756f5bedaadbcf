#!/usr/bin/env python3
"""Looks at pages of `baio report` in a browser, as people will.

    BAIO_PAGES_TO=/tmp/pages cargo test -p baio-measure --lib report::page
    tests/page.py chromium /tmp/pages/*.html

Opens each page at the size of a desk and of a phone, light and dark, and fails on: an error or a warning of the console, a request
other than for the page itself, a chart without a painted line or with a legend unlike its lines, an experiment without its table, a first
screen without the disk or ours beside the others, red or more than 25 screens before what is for the project, a number of missed marks that is not
that of their table, anything wider than the screen, text of too little contrast.
Then it presses the buttons: other colours, a part of a chart and the whole of it, its CSV.

    tests/page.py chromium --prove /tmp/pages/none-missed.html

puts flaws into a page, and fails where one is not found.

It needs a Chromium and nothing else, any user may run it (root too), and it writes nothing but --screenshots DIR.
"""

import argparse
import base64
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

SCREENS = {"desk": (1280, 800, False), "phone": (390, 844, True)}
THEMES = ["light", "dark"]
PATIENCE_S = 60

# The size of the screen, and the pixels of a canvas: of a copy, because reading the page's own would change how it is drawn.
TOOLS = """
    globalThis.screenWidth = WIDTH;
    globalThis.pixelsOf = (canvas) => {
      const copy = document.createElement("canvas");
      [copy.width, copy.height] = [canvas.width, canvas.height];
      const context = copy.getContext("2d", { willReadFrequently: true });
      context.drawImage(canvas, 0, 0);
      return context.getImageData(0, 0, copy.width, copy.height).data;
    };"""

# Each gives a list of what is wrong.
CHECKS = {
    "first screen": """
        (() => {
          const wrong = [];
          const phone = screenWidth < 600;
          // On a phone the disk begins there; what was not measured has no place.
          for (const id of ["verdict", "disk", "beside"]) {
            const element = document.getElementById(id);
            if (!element) { if (id === "verdict") wrong.push("no #" + id); continue; }
            const at = element.getBoundingClientRect();
            const ends = phone && id !== "verdict" ? at.top : at.bottom;
            if (at.top < 0 || (ends > innerHeight && !(phone && id === "beside")) || at.left < 0 || at.right > screenWidth || at.height === 0)
              wrong.push("#" + id + " is not on the first screen: " + JSON.stringify(at));
            if (!element.textContent.trim()) wrong.push("#" + id + " says nothing");
          }
          const project = document.getElementById("project");
          const before = (one, other) => Boolean(one.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING);
          for (const red of document.querySelectorAll(".missed"))
            if (before(red, project)) wrong.push("what stands before the project is red: " + red.outerHTML.slice(0, 80));
          const screens = (project.getBoundingClientRect().top + scrollY) / innerHeight;
          if (!phone && screens > 25) wrong.push(screens.toFixed(1) + " screens before what is for the project");
          if (!document.getElementById("missed")?.getBoundingClientRect().height) wrong.push("#missed is hidden");
          if (!/^\\d+ marks? (is|are) missed/.test(document.getElementById("missed")?.textContent ?? ""))
            wrong.push("#missed has no number");
          const told = parseInt(document.getElementById("missed")?.textContent);
          const listed = document.querySelectorAll("#misses tbody tr").length;
          if (told !== listed) wrong.push(told + " marks are missed, and the table lists " + listed);
          return wrong;
        })()""",
    "width": """
        (() => {
          const page = document.scrollingElement;
          if (page.scrollWidth <= innerWidth && innerWidth === screenWidth) return [];
          const wide = [...document.querySelectorAll("main *")].filter((e) => e.getBoundingClientRect().right > screenWidth && !e.closest(".scroll"));
          return ["the page is " + page.scrollWidth + " wide on a screen of " + screenWidth + ": "
            + wide.slice(0, 3).map((e) => e.outerHTML.slice(0, 120)).join(" | ")];
        })()""",
    "experiments": """
        [...document.querySelectorAll("section.experiment")].flatMap((section) => {
          const rows = Number(section.dataset.rows);
          const wrong = [];
          const shown = [...section.querySelectorAll("table.rows tbody tr")].filter((row) => row.offsetHeight > 0).length;
          if (shown !== rows) wrong.push(section.id + ": " + shown + " rows in its table, not " + rows);
          return wrong;
        })""",
    "pictures": """
        [...document.querySelectorAll("#pictures")].flatMap((section) => {
          const charts = Number(section.dataset.charts);
          const tables = section.querySelectorAll("figure.chart table.values").length;
          return tables === charts ? [] : [tables + " tables of " + charts + " charts"];
        })""",
    "legends": """
        [...document.querySelectorAll(".plot")].flatMap((plot) => {
          const lines = [...plot.querySelectorAll(".u-marker line")];
          const drawn = JSON.parse(document.getElementById(plot.dataset.of).textContent).lines.length;
          const whole = lines.filter((line) => !line.getAttribute("stroke-dasharray"));
          const looks = new Set(lines.map((line) => line.getAttribute("stroke-dasharray") + line.getAttribute("stroke")));
          const wrong = [];
          if (lines.length !== drawn) wrong.push(plot.dataset.of + ": its legend shows " + lines.length + " of " + drawn + " lines");
          if (whole.length > 1) wrong.push(plot.dataset.of + ": its legend shows " + whole.length + " whole lines, and it has one");
          if (looks.size !== lines.length) wrong.push(plot.dataset.of + ": its legend shows two lines alike");
          return wrong;
        })""",
    "charts": """
        [...document.querySelectorAll(".plot")].flatMap((plot) => {
          const canvas = plot.querySelector("canvas");
          if (!canvas) return [plot.dataset.of + ": not drawn"];
          // Of the colours of its lines: axes and grid alone are no chart.
          const pixels = pixelsOf(canvas);
          const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
          const style = getComputedStyle(document.documentElement);
          const chart = JSON.parse(document.getElementById(plot.dataset.of).textContent);
          const wrong = [];
          chart.lines.forEach((line, n) => {
            const drawable = chart.at.some((x, at) => line.values[at] != null && (!chart.x.logarithmic || x > 0)
              && (!chart.y.logarithmic || line.values[at] > 0));
            // What other lines may cover, and what shares its colour, is left to the eye.
            if (!drawable || n > 2 || line.values.some((v) => v != null && Math.abs(v) > 1e15)) return;
            probe.fillStyle = style.getPropertyValue(line.whose === "document" ? "--c-document" : "--c" + n).trim();
            probe.fillRect(0, 0, 1, 1);
            const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
            let found = 0;
            for (let i = 0; i < pixels.length; i += 4)
              if (pixels[i + 3] > 200 && Math.abs(pixels[i] - r) + Math.abs(pixels[i + 1] - g) + Math.abs(pixels[i + 2] - b) < 24) found++;
            if (found < 8) wrong.push(plot.dataset.of + ": line " + n + " has no painted pixels");
          });
          if (pixels.every((byte) => byte === 0)) wrong.push(plot.dataset.of + ": nothing is painted");
          return wrong;
        })""",
    "contrast": """
        (() => {
          const parts = (colour) => (colour.match(/[\\d.]+/g) ?? []).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
          const paper = (element) => {
            for (let e = element; e; e = e.parentElement) {
              const colour = parts(getComputedStyle(e).backgroundColor);
              if (colour.length === 3 || colour[3] === 1) return colour;
            }
            return [255, 255, 255];
          };
          const wrong = new Set();
          const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (texts.nextNode()) {
            const element = texts.currentNode.parentElement;
            if (!texts.currentNode.data.trim() || element.closest("script, style")) continue;
            const style = getComputedStyle(element);
            const ink = parts(style.color);
            const [a, b] = [light(ink), light(paper(element))].sort((x, y) => y - x);
            const contrast = (a + 0.05) / (b + 0.05);
            if (contrast < 4.5) wrong.add(contrast.toFixed(2) + " of <" + element.tagName.toLowerCase() + " class='" + element.getAttribute("class") + "'>");
          }
          return [...wrong];
        })()""",
}

# Presses what can be pressed. A promise of what is wrong.
PRESSES = """
    (async () => {
      const wrong = [];
      const paper = () => getComputedStyle(document.body).backgroundColor;
      const seen = {};
      for (const button of document.querySelectorAll("[data-theme-choice]")) { button.click(); seen[button.dataset.themeChoice] = paper(); }
      if (Object.keys(seen).length !== 3 || seen.light === seen.dark) wrong.push("the switch does not change colours: " + JSON.stringify(seen));
      document.querySelector("[data-theme-choice='']").click();
      const blobs = [];
      const make = URL.createObjectURL;
      URL.createObjectURL = (blob) => { blobs.push(blob); return make.call(URL, blob); };
      HTMLAnchorElement.prototype.click = function () {};
      for (const figure of document.querySelectorAll("figure.chart")) {
        const chart = JSON.parse(figure.querySelector("script").textContent);
        figure.querySelector(".csv").click();
        const text = await blobs.at(-1).text();
        const lines = text.trimEnd().split("\\r\\n");
        if (lines.length !== chart.at.length + 1) wrong.push(chart.title.slice(0, 40) + ": the CSV has " + lines.length + " lines");
        if (chart.at.length && !lines[1].startsWith(String(chart.at[0]))) wrong.push("the CSV begins with " + lines[1]);
        const shown = figure.querySelectorAll("table.values tbody tr").length;
        if (shown !== chart.at.length) wrong.push("the table of a chart has " + shown + " rows, not " + chart.at.length);
      }
      for (const details of document.querySelectorAll("details")) details.open = true;
      return wrong;
    })()"""

# Drags over the middle of a chart, as a hand would: the places to press and to let go, and what the axis says then.
PLOT = """
    (() => {
      const over = document.querySelector(".plot .u-over");
      if (!over) return null;
      over.scrollIntoView({ block: "center" });
      const at = over.getBoundingClientRect();
      return { x: at.left, y: at.top, width: at.width, height: at.height };
    })()"""
PAINTED = """
    (() => {
      const pixels = pixelsOf(document.querySelector(".plot canvas"));
      let hash = 7;
      for (let i = 0; i < pixels.length; i++) hash = (hash * 31 + pixels[i]) | 0;
      return hash;
    })()"""
LEGEND = "document.querySelector('.plot .u-legend').textContent"


# What each check must find, so that none of them is blind: a flaw that is put into a page with charts, and the word it is found by.
FLAWS = [
    ("an exception", "</main>", "</main><script nonce=NONCE>throw new Error('planted')</script>", "exception"),
    ("a word to the console", "</main>", "</main><script nonce=NONCE>console.warn('planted')</script>", "console"),
    ("a script without our nonce", "</main>", "</main><script>1</script>", "console"),
    ("a picture from elsewhere", "</main>", "</main><img src='http://localhost:9/planted.png'>", "console"),
    ("a request", "http-equiv=\"Content-Security-Policy\"", "><img src='http://localhost:9/planted.png'><meta", "a request"),
    ("a verdict below the first screen", "<h1 id=\"verdict\">", "<div style='height: 900px'></div><h1 id=\"verdict\">", "#verdict is not on"),
    ("a number of missed marks that is hidden", "<p id=\"missed\"", "<p hidden id=\"missed\"", "#missed is hidden"),
    ("a disk that is hidden", "<section id=\"disk\">", "<section hidden id=\"disk\">", "#disk is not on"),
    ("counts below the first screen", "<section id=\"beside\">", "<section id=\"beside\" style='padding-top: 900px'>", "#beside is not on"),
    ("red before what is for the project", "<h1 id=\"verdict\">", "<p class=missed>planted</p><h1 id=\"verdict\">", "is red"),
    ("too much before what is for the project", "<section id=\"project\">", "<div style='height: 20000px'></div><section id=\"project\">", "screens before"),
    ("a legend without dashes", "(line.dash ?? []).join(\" \")", "\"\"", "whole lines"),
    ("a legend without its lines", "marker.replaceChildren(picture);", "", "its legend shows 0"),
    ("a number that is not the table's", "0 marks are missed", "7 marks are missed", "the table lists 0"),
    ("something wide", "</main>", "<p style='width: 1500px'>planted</p></main>", "wide on a screen"),
    ("a missing row", "<tbody><tr><th", "<tbody><tr hidden><th", "rows in its table"),
    ("a missing table of a chart", "<table class=\"values\">", "<table>", "tables of"),
    ("a chart that is not drawn", "const whole = plot && tried(plot);", "const whole = null;", "not drawn"),
    ("lines that are not painted", "stroke: () => style(colour)", "stroke: () => 'transparent'", "no painted pixels"),
    ("soft letters that are too soft", "--soft: #57606a", "--soft: #97a0aa", "contrast"),
    ("a chart without zoom", "drag: { x: true, y: false }", "drag: { x: false, y: false }", "does not zoom"),
    ("a chart that stays enlarged", "u.setData(data);", "", "does not go back"),
    ("a legend without values", "legend: { live: true", "legend: { live: false", "no value under"),
    ("on a phone: a finger that does nothing", "    byFinger(u);\n", "", "finger"),
    ("on a phone: a finger that enlarges nothing", "if (most - least > 12)", "if (false)", "does not zoom"),
    ("on a phone: something wide", "</main>", "<p style='width: 400px'>planted</p></main>", "wide on a screen"),
    ("a switch that does nothing", "if (theme) root.dataset.theme = theme;", "if (theme) ;", "the switch does not"),
    ("a CSV without its head", "return [head, ...rows]", "return [...rows]", "the CSV"),
]


class Browser:
    """A headless Chromium, spoken to by its pipe: JSON messages that end in NUL, on its descriptors 3 and 4."""

    def __init__(self, program, sandbox):
        self.profile = tempfile.mkdtemp(prefix="baio-page.")
        to_browser, self.to = os.pipe()
        self.come, from_browser = os.pipe()
        words = [program, "--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check", "--disable-gpu",
                 "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage", "--hide-scrollbars",
                 "--user-data-dir=" + self.profile, "about:blank"]
        # Root can have none, and needs none: the pages are our own.
        if os.geteuid() == 0 or not sandbox:
            words.insert(1, "--no-sandbox")

        self.said = open(os.path.join(self.profile, "said"), "w+", errors="replace")

        def descriptors():
            # Out of the way first: either pipe may already have one of the two numbers.
            takes, gives = os.dup(to_browser), os.dup(from_browser)
            takes, gives = fcntl_up(takes), fcntl_up(gives)
            os.dup2(takes, 3)
            os.dup2(gives, 4)

        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=self.said, close_fds=False,
                                        preexec_fn=descriptors, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.events = []

    def ended(self):
        self.said.seek(0)
        return RuntimeError("the browser has ended; try --no-sandbox if this user may have none. It said:\n" + self.said.read()[-2000:])

    def receive(self):
        while b"\0" not in self.buffer:
            part = os.read(self.come, 1 << 16)
            if not part:
                raise self.ended()
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def ask(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            try:
                data = data[os.write(self.to, data):]
            except BrokenPipeError:
                raise self.ended() from None
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def until(self, session, method):
        """Waits for an event, which may have come already."""
        while not any(e.get("method") == method and e.get("sessionId") == session for e in self.events):
            self.events.append(self.receive())

    def close(self):
        try:
            self.ask("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.said.close()
        shutil.rmtree(self.profile, ignore_errors=True)


def fcntl_up(descriptor):
    """The same file under a number above 4."""
    import fcntl
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10)


class Page:
    """One page in a tab of its own."""

    def __init__(self, browser, path, screen, theme):
        self.browser = browser
        self.url = path.resolve().as_uri()
        self.width, self.height, self.phone = SCREENS[screen]
        target = browser.ask("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        browser.events.clear()
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.ask(domain + ".enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=self.width, height=self.height, deviceScaleFactor=2 if self.phone else 1, mobile=self.phone)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=self.phone)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.ask("Page.navigate", url=self.url)
        browser.until(self.session, "Page.loadEventFired")
        # Drawn, and measured again by whoever watches sizes.
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def ask(self, method, **params):
        return self.browser.ask(method, self.session, **params)

    def value(self, expression):
        result = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def complaints(self):
        """What the console said, what was thrown, what was asked of anybody but the file."""
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                yield "exception: " + details.get("exception", {}).get("description", details["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                yield "console: " + " ".join(str(a.get("value", a.get("description"))) for a in params["args"])
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                yield "console: " + params["entry"]["text"]
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                # The file itself; what the page holds, or has made.
                if url.split("#")[0] != self.url and not url.startswith(("data:", "blob:")):
                    yield "a request: " + url

    def mouse(self, kind, x, y, down=True):
        self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if down else "none", buttons=1 if down else 0, clickCount=1)

    def press(self, how, x, y):
        """`press`, `drag` or `release`, by the mouse or by a finger."""
        if self.phone:
            kind = {"press": "touchStart", "drag": "touchMove", "release": "touchEnd"}[how]
            self.ask("Input.dispatchTouchEvent", type=kind, touchPoints=[] if how == "release" else [{"x": x, "y": y}])
        else:
            kind = {"press": "mousePressed", "drag": "mouseMoved", "release": "mouseReleased"}[how]
            self.mouse(kind, x, y)

    def zooms(self):
        """Looks at the values of the first chart, enlarges a part of it, and goes back."""
        plot = self.value(PLOT)
        if plot is None:
            return
        y = plot["y"] + plot["height"] / 2
        before, told = self.value(PAINTED), self.value(LEGEND)
        frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))"
        if not self.phone:
            self.mouse("mouseMoved", plot["x"] + plot["width"] * 0.5, y, down=False)
            self.value(frame)
            if self.value(LEGEND) == told:
                yield "no value under the pointer"
        self.press("press", plot["x"] + plot["width"] * 0.3, y)
        for part in (0.4, 0.5, 0.7):
            self.press("drag", plot["x"] + plot["width"] * part, y)
            self.value(frame)
        if self.value(LEGEND) == told:
            yield "no value under the finger"
        self.press("release", plot["x"] + plot["width"] * 0.7, y)
        self.value(frame)
        if self.value(PAINTED) == before:
            yield "a chart does not zoom"
        self.value("document.querySelector('.whole').click()")
        self.value(frame)
        if self.value(PAINTED) != before:
            yield "a chart does not go back to its whole range"

    def picture(self, to, whole):
        params = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            height = min(self.value("document.scrollingElement.scrollHeight"), 30000)
            params["clip"] = {"x": 0, "y": 0, "width": self.width, "height": height, "scale": 1}
        to.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", **params)["data"]))

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)


def look(browser, path, screen, theme, screenshots):
    page = Page(browser, path, screen, theme)
    wrong = []
    page.value(TOOLS.replace("WIDTH", str(page.width)))
    if screenshots:
        name = f"{path.stem}-{screen}-{theme}"
        page.picture(screenshots / f"{name}-first.png", False)
        page.picture(screenshots / f"{name}.png", True)
    for name, script in CHECKS.items():
        wrong += [f"{name}: {what}" for what in page.value(script)]
    wrong += page.zooms()
    wrong += page.value(PRESSES)
    # With everything unfolded, too.
    page.value("scrollTo(0, 0)")
    for name in ("width", "contrast"):
        wrong += [f"unfolded: {name}: {what}" for what in page.value(CHECKS[name])]
    wrong += page.complaints()
    page.close()
    return wrong


def prove(browser, path):
    """Puts each flaw into the page, and counts those that are not found."""
    text = path.read_text()
    nonce = text.split("'nonce-")[1].split("'")[0]
    blind = 0
    with tempfile.TemporaryDirectory(prefix="baio-page.") as place:
        flawed = pathlib.Path(place) / "flawed.html"
        for name, there, instead, word in FLAWS:
            signal.alarm(PATIENCE_S)
            if there not in text:
                print(f"FAILED: {name}: the page has no {there!r} to put it into")
                blind += 1
                continue
            flawed.write_text(text.replace(there, instead.replace("NONCE", nonce)))
            try:
                wrong = look(browser, flawed, "phone" if name.startswith("on a phone") else "desk", "light", None)
            except RuntimeError as error:
                wrong = [str(error)]
            found = any(word in what for what in wrong)
            blind += not found
            print(f"{'ok' if found else 'FAILED'}: {name} is {'' if found else 'not '}found")
            if not found:
                print("    " + "; ".join(wrong)[:400])
    return blind


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("browser", help="a Chromium: its name or its path")
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    parser.add_argument("--screenshots", type=pathlib.Path, metavar="DIR", help="keep a picture of each page, whole and as first seen")
    parser.add_argument("--no-sandbox", action="store_true", help="for a user who may make none, as in a container")
    parser.add_argument("--prove", action="store_true", help="put flaws into the first page, which has charts and no missed mark; each must be found")
    args = parser.parse_args()
    for path in args.pages:
        if not path.is_file():
            parser.error(f"{path} is no file")
    if shutil.which(args.browser) is None:
        parser.error(f"there is no program {args.browser}")
    if args.screenshots:
        args.screenshots.mkdir(parents=True, exist_ok=True)

    def stuck(signum, frame):
        raise RuntimeError(f"the browser has not answered for {PATIENCE_S} s")

    signal.signal(signal.SIGALRM, stuck)
    browser = Browser(args.browser, not args.no_sandbox)
    failed = 0
    try:
        if args.prove:
            failed += prove(browser, args.pages.pop(0))
            args.pages.clear()
        for path in args.pages:
            for screen in SCREENS:
                for theme in THEMES:
                    signal.alarm(PATIENCE_S)
                    wrong = look(browser, path, screen, theme, args.screenshots)
                    failed += len(wrong)
                    print(f"{'FAILED' if wrong else 'ok'}: {path.name}, {screen}, {theme}")
                    for what in wrong:
                        print("    " + what[:400])
    except RuntimeError as error:
        print(f"FAILED: {error}")
        failed += 1
    finally:
        signal.alarm(PATIENCE_S)
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
