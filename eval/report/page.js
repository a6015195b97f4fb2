// Which page is shown, colours, keys and printing. The address holds the state, so that back and links work.

const current = { page: "overview", row: null };
const PAGES = ["overview", "episodes", "episode", "group"];
let turn = 0;

function listHash() {
  const state = new URLSearchParams();
  if (list.find) state.set("find", list.find);
  for (const [name, picked] of Object.entries(list.filters)) if (picked) state.set(name, picked);
  if (list.sort) state.set("sort", (list.down ? "-" : "") + list.sort);
  if (list.extra) state.set("extra", list.extra);
  return `#episodes${state.size ? `?${state}` : ""}`;
}

function remember() {
  if (current.page === "episodes") history.replaceState(null, "", listHash());
}

function readList(query) {
  const state = new URLSearchParams(query);
  Object.assign(list, { filters: {}, find: "", sort: null, down: false, extra: "" });
  const known = (column) => column in INDEX.texts || Array.isArray(INDEX.columns[column]) || (column.startsWith("part:") && column.slice(5) in INDEX.parts);
  for (const [name, picked] of state) {
    if (name === "find") list.find = picked;
    else if (name === "extra") { if (known(picked)) list.extra = picked; }
    else if (name === "sort") {
      const column = picked.replace(/^-/, "");
      if (known(column)) Object.assign(list, { sort: column, down: picked.startsWith("-") });
    } else if (name === "score" ? picked in SCORES : INDEX.texts[name]?.values.includes(picked)) list.filters[name] = picked;
  }
  showControls();
}

async function show() {
  const mine = turn += 1;
  const [path, query] = location.hash.slice(1).split("?");
  const [name, argument] = path.split("/");
  const page = PAGES.includes(name) ? name : "overview";
  const box = document.getElementById(`page-${page}`);
  if (page === "episodes") {
    if (`#${path}${query ? `?${query}` : ""}` !== listHash()) readList(query);
    list.rows = chosen();
    list.cursor = Math.max(0, list.rows.indexOf(current.row));
  }
  try {
    if (page === "episode") {
      const row = Number(argument);
      if (!(row in INDEX.columns.id)) throw new Error(`there is no episode ${argument}`);
      current.row = row;
      await showEpisode(row, box);
    } else if (page === "group") await showGroup(Number(argument), box);
  } catch (error) {
    box.replaceChildren(el("p", { class: "note" }, `Cannot be shown: ${error.message}`));
  }
  if (mine !== turn) return;
  current.page = page;
  for (const each of PAGES) document.getElementById(`page-${each}`).hidden = each !== page;
  for (const link of document.querySelectorAll("nav a")) {
    const is = link.dataset.page === page;
    if (is) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    if (is || (link.dataset.page === "episode" && current.row !== null)) link.hidden = false;
    if (is) link.setAttribute("href", location.hash || "#overview");
  }
  if (page === "episodes") {
    document.querySelector('nav a[data-page="episodes"]').setAttribute("href", listHash());
    renderList();
    moveTo(list.cursor);
    windowBox.focus({ preventScroll: true });
  } else {
    window.scrollTo(0, 0);
    document.getElementById("main").focus({ preventScroll: true });
  }
}

const THEMES = ["auto", "light", "dark"];

function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  document.getElementById("theme").textContent = `Theme: ${name}`;
}

function nextTheme() {
  const now = document.documentElement.dataset.theme || "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  theme(next);
  try { localStorage.setItem("agl-report-theme", next); } catch { /* a browser may refuse to keep it */ }
}

document.getElementById("theme").addEventListener("click", nextTheme);
document.getElementById("help").addEventListener("click", () => document.getElementById("keys").showModal());
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); document.getElementById("main").focus(); });

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && typing) { event.target.blur(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.getElementById("keys").open) return;
  const keys = {
    "1": () => { location.hash = "#overview"; },
    "2": toList,
    u: toList,
    t: nextTheme,
    "?": () => document.getElementById("keys").showModal(),
    "/": () => { if (current.page !== "episodes") toList(); setTimeout(() => document.getElementById("find").focus()); },
    j: () => (current.page === "episodes" ? moveTo(list.cursor + 1) : step_(1)),
    k: () => (current.page === "episodes" ? moveTo(list.cursor - 1) : step_(-1)),
    g: () => { if (current.page === "episode" && members(current.row).length > 1) location.hash = groupHash(current.row); },
  };
  if (!(event.key in keys)) return;
  event.preventDefault();
  keys[event.key]();
});

const MOST_PRINTED = 500;
window.addEventListener("beforeprint", () => { if (current.page === "episodes") renderWindow(MOST_PRINTED); });
window.addEventListener("afterprint", () => { if (current.page === "episodes") renderWindow(); });
window.addEventListener("resize", () => { if (current.page === "episodes") renderList(); });
window.addEventListener("hashchange", show);

try { theme(THEMES.includes(localStorage.getItem("agl-report-theme")) ? localStorage.getItem("agl-report-theme") : "auto"); } catch { theme("auto"); }
buildFilters();
list.rows = chosen();
show();
