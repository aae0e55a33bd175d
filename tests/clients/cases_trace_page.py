# SPDX-License-Identifier: MIT
"""uhca trace --html and --perfetto: whole, self-contained, and with the events of the run. With UHCA_LONG=1 also in headless Chromium."""
import collections
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import tempfile

from rig import LIMIT, UHCA, require

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
VOID = {"meta", "input", "br", "link"}


def run(*words, status=0):
    env = dict(os.environ, PATH=os.path.dirname(UHCA) + ":" + os.environ["PATH"])
    r = subprocess.run([UHCA, "trace", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT, cwd=ROOT, env=env)
    require(r.returncode == status, "exit status %d:\n%s%s" % (r.returncode, r.stdout, r.stderr))
    return r.stderr


class Page(html.parser.HTMLParser):
    """Every element is closed in order; the data of the script that holds the trace."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.stack, self.data, self.loads, self.in_trace = [], "", [], False
        self.feed(text)
        self.close()
        require(not self.stack, "left open: %s" % self.stack)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.loads += [v for k, v in attrs.items() if k in ("src", "href", "action", "data")]
        self.in_trace = attrs.get("id") == "trace"
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        require(self.stack and self.stack.pop() == tag, "</%s> closes nothing" % tag)
        self.in_trace = False

    def handle_data(self, data):
        if self.in_trace:
            self.data += data


def parse_page(path):
    text = open(path).read()
    page = Page(text)
    require(not page.loads, "the page loads %s" % page.loads)
    require(not re.search(r"https?://|@import|url\(", text.replace(page.data, "")), "the page names something elsewhere")
    return json.loads(page.data)


def of_a_run():
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, f) for f in ("t.html", "t.perfetto", "t.json")]
        run("--html", files[0], "--perfetto", files[1], "--json", "-o", files[2], "--", "docs/tour/pair", "ibv_rc_pingpong", "-n", "10", "-s", "64")
        page, perfetto = parse_page(files[0]), json.load(open(files[1]))
        events = [json.loads(line) for line in open(files[2])]

    def key(e):
        return e["pid"], e["layer"], e["name"]
    require(len(events) > 500, "only %d events" % len(events))
    require(collections.Counter(map(key, page["events"])) == collections.Counter(map(key, events)), "the page has other events than the run")
    require(page["command"].startswith("docs/tour/pair ibv_rc_pingpong"), page["command"])
    times = [e["t"] for e in page["events"]]
    require(times == sorted(times), "not in order of time")

    posts = [r for r in page["requests"] if "ibv_post_send SEND" in r["title"]]
    require(len(posts) == 20, "%d requests of 20 posts" % len(posts))
    for r in posts:
        path = [page["events"][i] for i in r["path"]]
        layers = collections.Counter(e["layer"] for e in path)
        # The post, a poll at each end; a WQE and a CQE of each queue; the SEND and its ACK, each sent and received.
        want = {"api": 3, "doorbell": 1, "wqe": 2, "frame": 4, "cqe": 2}
        require(layers == want, "%s goes through %s" % (r["title"], dict(layers)))
        require(len({e["pid"] for e in path}) == 2, "a path in one process")
        require("SEND (0xa)" in [e["fields"].get("opcode") for e in path], "the WQE's opcode has no name")
    created = next(r for r in page["requests"] if "ibv_create_qp" in r["title"])
    require("CREATE_QP" in [page["events"][i]["name"] for i in created["path"]], "creating a QP issues no command")

    rows = collections.defaultdict(list)
    for e in perfetto["traceEvents"]:
        rows[e["ph"]].append(e)
    require(set(rows) == {"M", "X", "s", "t", "f"}, "phases %s" % set(rows))
    require(len(rows["X"]) == len(events), "%d slices of %d events" % (len(rows["X"]), len(events)))
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in rows["M"] if e["name"] == "thread_name"}
    require(all(named[e["pid"], e["tid"]] == e["cat"] for e in rows["X"]), "a slice on another layer's track")
    slices = {(e["pid"], e["tid"], e["ts"]) for e in rows["X"]}
    require(all((e["pid"], e["tid"], e["ts"]) in slices for ph in "stf" for e in rows[ph]), "an arrow that meets no slice")
    ids = [e["id"] for e in rows["s"]]
    require(len(ids) == len(set(ids)) and sorted(ids) == sorted(e["id"] for e in rows["f"]), "arrows without both ends")


def what_programs_print_stays_data():
    """Nothing that a program brings into its trace or its command line ends the page's script."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.html")
        evil = "</script><!-- <script>\u2028\"\\'"
        run("--html", path, "--", "bash", "-c", ":", evil)
        require(parse_page(path)["command"] == "bash -c : " + evil, "the command line came out differently")


def of_one_request():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "t.html")
        words = ["--", "docs/tour/pair", "ibv_rc_pingpong", "-n", "5", "-s", "64"]
        run("--html", path, "--only", "ibv_post_send#1", *words)
        page = parse_page(path)
        require(len(page["events"]) == 12, "%d events of one request" % len(page["events"]))
        require("made no call" in run("--html", path, "--only", "ibv_post_send#99", *words, status=1), "no reason")


def refused():
    require("/no/such/folder/x" in run("--html", "/no/such/folder/x", "--", "true", status=1), "no reason")
    require("/no/such/folder/x" in run("--perfetto", "/no/such/folder/x", "--", "true", status=1), "no reason")


# Put before the page's own script and behind it: what a reader does, and what it shows then.
WATCH = "<script>window.faults = []; window.onerror = m => { faults.push(String(m)); };</script>"
ACT = """<script>
window.onload = () => {
  const out = { loaded: performance.now(), count: document.getElementById('count').textContent };
  const button = [...document.querySelectorAll('#requests button')].find(b => b.textContent.includes('ibv_post_send'));
  out.title = button.textContent;
  button.click();
  out.pressed = button.getAttribute('aria-pressed');
  const steps = [...document.querySelectorAll('#path li')];
  out.path = steps.map(li => li.querySelector('span').textContent);
  steps[out.path.indexOf('wqe')].click();
  out.details = Object.fromEntries([...document.querySelectorAll('#details tr')].map(r => [r.cells[0].textContent, r.cells[1].textContent]));
  const canvas = document.getElementById('lanes');
  out.canvas = [canvas.width, canvas.height];
  canvas.dispatchEvent(new WheelEvent('wheel', { deltaY: -100, cancelable: true }));
  const object = document.getElementById('object');
  object.value = [...object.options].find(o => o.value.startsWith('QP=')).value;
  object.onchange();
  out.filtered = document.getElementById('count').textContent;
  out.left = document.querySelectorAll('#requests button').length;
  out.faults = faults;
  const p = document.createElement('pre');
  p.id = 'result'; p.hidden = true; p.textContent = JSON.stringify(out);
  document.body.append(p);
};
</script>"""


def in_a_browser():
    browser = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None)
    require(browser, "no headless browser: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as folder:
        path, shot = os.path.join(folder, "t.html"), os.path.join(folder, "t.png")
        run("--html", path, "--", "docs/tour/pair", "ibv_rc_pingpong", "-n", "400", "-s", "64")
        n = len(parse_page(path)["events"])
        require(n > 10000, "only %d events" % n)
        text = open(path).read()
        text = text.replace("</head>", WATCH + "</head>").replace("</body>", ACT + "</body>")
        open(path, "w").write(text)
        common = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir=" + folder, "--window-size=1500,900",
                  "--enable-logging=stderr"]
        r = subprocess.run(common + ["--dump-dom", "file://" + path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        m = re.search(r'<pre id="result" hidden="">(.*?)</pre>', r.stdout, re.S)
        require(m, "the page did not come to its end:\n" + r.stderr[-3000:])
        out = json.loads(html.unescape(m[1]))
        require(not out["faults"] and "CONSOLE" not in r.stderr, "errors: %s\n%s" % (out["faults"], r.stderr))
        require(out["loaded"] < 3000, "%d events took %.0f ms" % (n, out["loaded"]))
        require(out["count"].startswith("%d of %d events" % (n, n)), out["count"])
        require(out["pressed"] == "true" and "ibv_post_send SEND" in out["title"], str(out))
        require(collections.Counter(out["path"]) == {"api": 3, "doorbell": 1, "wqe": 2, "frame": 4, "cqe": 2}, "path %s" % out["path"])
        require(out["details"].get("opcode") == "SEND (0xa)" and "psn" in out["details"], str(out["details"]))
        require(out["canvas"][0] > 500 and out["canvas"][1] > 200, "canvas %s" % out["canvas"])
        require(out["left"] > 0 and int(out["filtered"].split()[0]) < n, "the filter shows %s" % out["filtered"])
        subprocess.run(common + ["--screenshot=" + shot, "file://" + path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT)
        require(os.path.getsize(shot) > 10000, "an empty screenshot")
        if os.environ.get("UHCA_SCREENSHOT"):
            shutil.copy(shot, os.environ["UHCA_SCREENSHOT"])


def register(runner):
    runner.case("trace page of a run", of_a_run)
    runner.case("trace page of one request", of_one_request)
    runner.case("trace page keeps data apart", what_programs_print_stays_data)
    runner.case("trace page refused", refused)
    if os.environ.get("UHCA_LONG"):
        runner.case("trace page in a browser", in_a_browser)
