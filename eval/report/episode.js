// One episode to read, and the members of one group side by side.

async function showEpisode(row, box) {
  const episode = await episodeAt(row);
  const place = list.rows.indexOf(row);
  const near = (step, text) => el("button", {
    type: "button", disabled: place < 0 || place + step < 0 || place + step >= list.rows.length, onclick: () => step_(step),
  }, text);
  const group = members(row);
  box.replaceChildren(
    el("div", { class: "head" },
      el("h1", {}, el("bdi", {}, cut(episode.task.id, 300)), " ", el("span", { class: "quiet" }, subtitle(row, episode))),
      near(-1, "◀ Previous"), near(1, "Next ▶"),
      group.length > 1 ? el("button", { type: "button", onclick: () => { location.hash = groupHash(row); } },
        `${group.length} side by side`) : null,
      el("button", { type: "button", onclick: toList }, "List")),
    el("div", { class: "two" },
      el("div", {}, transcript(episode), events(episode)),
      el("div", { class: "side" }, scoreCard(episode), answerCard(episode),
        episode.drawing ? graphCard(episode.drawing) : null, taskCard(episode))));
}

const groupHash = (row) => `#group/${INDEX.columns.group.codes[row]}`;
const toList = () => { location.hash = listHash(); };

function step_(by) {
  const place = list.rows.indexOf(current.row) + by;
  if (current.page === "episode" && list.rows[place] !== undefined) location.hash = `#episode/${list.rows[place]}`;
}

function subtitle(row, episode) {
  const step = INDEX.columns.step ? `step ${value("step", row)}, ` : "";
  return `${step}attempt ${episode.attempt}, ${episode.policy}, dialect ${episode.dialect}`;
}

function transcript(episode) {
  const { tokens } = episode;
  const counts = { prompt: tokens.prompt, sampled: tokens.sampled, injected: tokens.injected };
  const what = { prompt: "prompt", sampled: "sampled by the policy", injected: "injected by the environment" };
  const legend = Object.keys(counts).map((source) => el("span", {}, el("i", { class: source }), what[source],
    counts[source] === null ? "" : `: ${number(counts[source])} tokens`));
  const turns = episode.transcript;
  const asked = turns.findLastIndex((turn, place) => turn.source === "prompt" && turn.role === "user"
    && turns.slice(0, place).every((earlier) => earlier.source === "prompt"));
  return el("section", { class: "card transcript" }, el("h2", {}, "Transcript"), el("div", { class: "legend" }, legend),
    turns.length ? turns.map((turn, place) => turnBlock(turn, place === asked)) : el("p", { class: "quiet" }, "Nothing was recorded."));
}

function turnBlock(turn, open) {
  const who = `${turn.source}, ${turn.role}${turn.finish ? `, finish ${turn.finish}` : ""}`;
  if (turn.source !== "prompt") return el("div", { class: `turn ${turn.source}` }, el("div", { class: "who" }, who), prose(turn.text));
  return el("details", { class: "turn prompt", open }, el("summary", {}, `${who}, ${number(turn.text.length)} characters`), prose(turn.text));
}

function events(episode) {
  return el("section", { class: "card actions" }, el("h2", {}, `Actions: ${episode.events.length}`),
    episode.events.length ? episode.events.map(eventBlock) : el("p", { class: "quiet" }, "No action."));
}

function eventBlock(event, place) {
  const kept = JSON.stringify(event.arguments, null, 1);
  const said = typeof event.arguments.text === "string" && Object.keys(event.arguments).length === 1 ? event.arguments.text : tidy(kept);
  return el("div", { class: `event${event.is_error ? " error" : ""}` },
    el("div", { class: "who" }, `${place + 1}. ${event.action}${event.is_error ? " (answered by an error)" : ""}`),
    prose(said, 3000), event.observation ? [el("div", { class: "quiet" }, "observation"), prose(event.observation, 3000)] : null);
}

// Innermost lists and objects on one line: a graph is read by its rows.
const tidy = (json) => json.replace(/[[{]\s+([^[\]{}]*?)\s+[\]}]/g, (all) => (all.length < 400 ? all.replace(/\n\s*/g, " ") : all));

function scoreCard(episode) {
  const { score, outcome } = episode;
  const rows = [["outcome", `${outcome.kind}, stopped by ${outcome.stop}${outcome.retries ? `, retries ${outcome.retries}` : ""}`]];
  if (outcome.error) rows.push(["error", outcome.error]);
  if (score) {
    rows.unshift(["score", number(score.total)], ["reward", number(score.reward)]);
    for (const [name, label] of Object.entries(score.labels)) rows.push([name, label]);
    for (const [name, part] of Object.entries(score.parts)) rows.push([name, part]);
  }
  for (const [name, time] of Object.entries(episode.seconds)) rows.push([`seconds, ${name}`, number(+time.toPrecision(3))]);
  return el("section", { class: "card score" }, el("h2", {}, "Score"), pairs(rows));
}

function pairs(rows) {
  return el("dl", { class: "pairs" }, rows.map(([name, found]) => {
    const shown = typeof found === "number" || found === null ? number(found) : cut(found, 2000);
    const dd = el("dd", { class: found === 0 ? "zero" : null }, el("bdi", {}, shown));
    if (typeof found === "number" && found > 0 && found < 1) {
      const bar = el("span", { class: "bar" });
      bar.style.width = `${Math.round(60 * found)}px`;
      dd.append(bar);
    }
    return [el("dt", {}, name), dd];
  }));
}

function answerCard(episode) {
  if (episode.gold === null && episode.predicted === null) return null;
  const side = (name, text, tone) => [el("div", { class: `quiet ${tone}` }, name), text === null ? el("p", { class: "quiet" }, "none") : prose(text, 2000)];
  return el("section", { class: "card answers" }, el("h2", {}, "Gold against prediction"),
    side("gold", episode.gold, ""), side("predicted", episode.predicted, ""));
}

function taskCard(episode) {
  return el("details", { class: "card" }, el("summary", {}, "Task, with its hidden truth"),
    prose(tidy(JSON.stringify(episode.task, null, 1)), 4000));
}

const MOST_MEMBERS = 24;

async function showGroup(code, box) {
  const rows = (MEMBERS.get(code) || []).slice(0, MOST_MEMBERS);
  const episodes = await Promise.all(rows.map(episodeAt));
  if (!rows.length) { box.replaceChildren(el("p", {}, "No such group.")); return; }
  const left = MEMBERS.get(code).length - rows.length;
  const rewards = new Set(rows.map((row) => value("reward", row)).filter((reward) => reward !== null));
  const flat = rows.length > 1 && rewards.size < 2 ? "All rewards are equal: in training this group gives no gradient." : "";
  box.replaceChildren(el("div", {},
    el("div", { class: "head" }, el("h1", {}, el("bdi", {}, cut(episodes[0].task.id, 300)), " ",
      el("span", { class: "quiet" }, `${rows.length} side by side${left ? `, ${left} more not shown` : ""}`)),
      el("button", { type: "button", onclick: toList }, "List")),
    flat ? el("p", { class: "note" }, flat) : null,
    groupTable(rows, episodes),
    el("div", { class: "members", tabindex: "0", "aria-label": "Members; scroll sideways" }, rows.map((row, place) => member(row, episodes[place])))));
}

function groupTable(rows, episodes) {
  const lines = [["score", (row) => number(value("score", row))], ["reward", (row) => number(value("reward", row))],
    ["outcome", (row) => value("outcome", row)], ["stopped by", (row) => value("stop", row)],
    ["turns", (row) => number(value("turns", row))], ["tokens", (row) => number(value("tokens", row))],
    ...Object.keys(INDEX.texts).filter((name) => name.startsWith("label:")).map((name) => [title(name), (row) => value(name, row) ?? "–"]),
    ...Object.keys(INDEX.parts).map((name) => [name, (row) => number(value(`part:${name}`, row))])];
  const body = lines.map(([name, show]) => {
    const cells = rows.map(show);
    if (cells.every((cell) => cell === "–")) return null;
    return el("tr", { class: new Set(cells).size > 1 ? "differs" : null }, el("th", { scope: "row" }, name), cells.map((cell) => el("td", {}, cut(cell, 40))));
  });
  return el("details", { open: true }, el("summary", {}, "Score parts; names in colour differ between members"), el("div", { class: "wide" },
    el("table", { class: "plain" }, el("thead", {}, el("tr", {}, el("th", {}), rows.map((row) => el("th", {}, el("a", { href: `#episode/${row}` }, memberName(row)))))),
      el("tbody", {}, body))));
}

function member(row, episode) {
  const own = episode.transcript.filter((turn, place, all) => turn.source !== "prompt" || all.slice(0, place).some((earlier) => earlier.source !== "prompt"));
  return el("section", { class: "card" },
    el("h2", {}, el("a", { href: `#episode/${row}` }, memberName(row)), ` score ${number(value("score", row))}, reward ${number(value("reward", row))}`),
    episode.predicted !== null ? [el("div", { class: "quiet" }, "predicted"), prose(episode.predicted, 600)] : null,
    episode.drawing ? drawGraph(episode.drawing) : null,
    own.map((turn) => turnBlock(turn, false)));
}
