// Keeps the page up to date: a stream of events says when to load it again, and what has changed replaces what is shown. Without this script
// every page works and shows the moment at which it was loaded.

const afterEvent = 2000; // least time between two loads, in milliseconds
const anyway = 10000; // for figures, which change without an event
const mostRows = 500; // of the feed of events
const afterRefusal = 30000; // until a stream that was refused is asked for again

const link = document.getElementById("link");
const feed = document.getElementById("feed");
let since = document.body.dataset.since; // what the page does not show yet
const ahead = Date.now() - Date.parse(since); // the tab's clock, of the gateway's
const query = feed ? feed.dataset.query : document.body.dataset.live;

function showStatus(on, text) {
  if (link.textContent === text) return;
  link.className = on ? "link on" : "link off";
  link.title = "";
  link.textContent = text;
}

// --- the page

let loading = false, wanted = false, lastLoad = Date.now();

async function refresh() {
  if (loading || document.hidden) return;
  loading = true;
  wanted = false;
  const began = performance.now();
  try {
    const url = new URL(location.href);
    url.searchParams.delete("done"); // the notice of an action has been read
    const answer = await fetch(url, {headers: {Accept: "text/html"}, signal: AbortSignal.timeout(15000)});
    if (answer.redirected) return location.reload(); // to the sign-in
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (answer.ok) {
      update(next);
      if (!stream || stream.readyState !== EventSource.OPEN) showStatus(false, "refreshing every 10 s");
    } else {
      showStatus(false, next.querySelector("[role=alert]")?.textContent ?? "the agent answers with an error");
    }
  } catch {
    showStatus(false, "the agent does not answer; this is what it said last");
  }
  loading = false;
  lastLoad = Date.now();
  const rest = Math.max(afterEvent, 10 * (performance.now() - began)); // a slow page is loaded less often
  setTimeout(() => { if (wanted) refresh(); }, rest);
}

function want() {
  if (wanted) return;
  wanted = true;
  setTimeout(() => { if (wanted) refresh(); }, Math.max(200, lastLoad + afterEvent - Date.now()));
}

// update replaces the parts of the page that have an id and differ.
function update(next) {
  for (const part of document.querySelectorAll("main > [id], main .live[id], #roster, #as-of")) {
    const other = next.getElementById(part.id);
    if (other) morph(part, other);
  }
  for (const part of next.querySelectorAll("main > [id]")) { // what is new, and what is gone
    if (!document.getElementById(part.id)) {
      const before = part.previousElementSibling?.id && document.getElementById(part.previousElementSibling.id);
      if (before) before.after(document.adoptNode(part)); else location.reload();
    }
  }
  for (const part of document.querySelectorAll("main > [id]")) if (!next.getElementById(part.id)) part.remove();
}

// morph changes an element to look like another one, and touches nothing that is the same: focus, selection and scroll position stay.
function morph(from, to) {
  if (from.isEqualNode(to)) return;
  for (const {name} of [...from.attributes]) if (!to.hasAttribute(name)) from.removeAttribute(name);
  for (const {name, value} of to.attributes) if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  const end = from.classList.contains("tail") && from.scrollTop + from.clientHeight >= from.scrollHeight - 8;
  const byId = new Map();
  for (const child of from.children) if (child.id) byId.set(child.id, child);
  let at = from.firstChild;
  for (const wish of [...to.childNodes]) {
    const known = wish.id && byId.get(wish.id);
    if (known && known !== at) from.insertBefore(known, at), at = known;
    if (at && (known || at.nodeType === wish.nodeType && at.nodeName === wish.nodeName && !(at.id || wish.id) || at.id && at.id === wish.id)) {
      if (at.nodeType === Node.ELEMENT_NODE) morph(at, wish); else if (at.data !== wish.data) at.data = wish.data;
      at = at.nextSibling;
    } else {
      from.insertBefore(document.adoptNode(wish), at);
    }
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
  if (end) from.scrollTop = from.scrollHeight;
}

// --- the feed of events

let paused = false;
const held = [];
const pause = document.getElementById("pause");
if (pause) {
  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", paused);
    pause.textContent = paused ? "Resume" : "Pause";
    if (!paused) held.splice(0).forEach(show);
  });
}

const shown = new Set(); // ids: a stream that is opened again repeats events
if (feed) for (const row of feed.tBodies[0].rows) shown.add(row.dataset.id);

function show(event) {
  if (shown.has(event.id)) return;
  shown.add(event.id);
  const body = feed.tBodies[0];
  const row = body.insertRow(0);
  row.dataset.id = event.id;
  row.className = event.tone + " new";
  const time = document.createElement("time");
  time.dateTime = event.time;
  time.textContent = event.time.slice(11, 19);
  const of = document.createElement(event.path ? "a" : "span");
  if (event.path) of.href = event.path;
  of.textContent = event.subject;
  row.insertCell().append(time);
  row.insertCell().append(event.type);
  row.insertCell().append(of);
  row.insertCell().append(event.text.slice(0, 400));
  while (body.rows.length > mostRows) {
    shown.delete(body.rows[body.rows.length - 1].dataset.id);
    body.deleteRow(-1);
  }
}

// --- the stream

let stream = null;

function listen() {
  if (query === undefined || stream || document.hidden) return;
  stream = new EventSource("/ui/live?" + query + "&since=" + encodeURIComponent(since));
  stream.onopen = () => showStatus(true, "live");
  stream.onerror = () => {
    if (stream?.readyState !== EventSource.CLOSED) return showStatus(false, "connecting again…");
    showStatus(false, feed ? "events do not come live now" : "refreshing every 10 s"); // there are too many streams
    stream = null;
    setTimeout(listen, afterRefusal);
  };
  stream.addEventListener("trouble", message => {
    showStatus(false, "events are missing");
    link.title = JSON.parse(message.data);
  });
  stream.onmessage = message => {
    showStatus(true, "live");
    const event = JSON.parse(message.data);
    const now = new Date(Date.now() - ahead).toISOString();
    const at = event.time < now ? event.time : now; // the clock of its host may be ahead
    if (at > since) since = at;
    if (!feed) want(); else if (!paused) show(event); else if (held.length < mostRows) held.push(event);
  };
}

// A page that nobody looks at costs nothing.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    stream?.close();
    stream = null;
  } else {
    listen();
    if (!feed && query !== undefined) want();
  }
});

listen();
if (!feed && query !== undefined) setInterval(refresh, anyway);
for (const log of document.querySelectorAll(".tail, .last .log")) log.scrollTop = log.scrollHeight;

// "/" goes to the search of the page.
document.addEventListener("keydown", event => {
  const search = document.querySelector("[data-focus='/']");
  if (event.key !== "/" || !search || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  search.focus();
});
