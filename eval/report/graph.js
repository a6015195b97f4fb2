// Small graphs: a place for every node, then the written graph over the true one. Equal graphs get equal pictures.

const WIDE = 560;
const TALL = 430;
const GOLD = 1;
const SAID = 2;
const VISITED = 4;

// Fruchterman and Reingold 1991 from a circle; dense graphs stay on the circle, along the answer where it is a route.
function places(drawing) {
  const n = drawing.nodes.length;
  const ring = route(drawing);
  const at = [];
  ring.forEach((node, place) => {
    const angle = (2 * Math.PI * place) / n - Math.PI / 2;
    at[node] = [Math.cos(angle), Math.sin(angle)];
  });
  if (n < 3 || drawing.edges.length > 0.35 * n * (n - 1) / 2 + n) return at;
  const ideal = Math.sqrt(4 / n);
  const steps = n > 80 ? 120 : 260;
  for (let step = 0; step < steps; step += 1) {
    const push = at.map(() => [0, 0]);
    for (let i = 0; i < n; i += 1) {
      for (let j = i + 1; j < n; j += 1) {
        const dx = at[i][0] - at[j][0] || 1e-3 * (i - j);
        const dy = at[i][1] - at[j][1];
        const force = (ideal * ideal) / Math.max(dx * dx + dy * dy, 1e-4);
        push[i][0] += dx * force; push[i][1] += dy * force;
        push[j][0] -= dx * force; push[j][1] -= dy * force;
      }
      push[i][0] -= at[i][0] * 1.5 * ideal; push[i][1] -= at[i][1] * 1.5 * ideal;
    }
    for (const [u, v] of drawing.edges) {
      const dx = at[u][0] - at[v][0];
      const dy = at[u][1] - at[v][1];
      const force = Math.hypot(dx, dy) / ideal;
      push[u][0] -= dx * force; push[u][1] -= dy * force;
      push[v][0] += dx * force; push[v][1] += dy * force;
    }
    const heat = 0.12 * (1 - step / steps) + 0.002;
    for (let i = 0; i < n; i += 1) {
      const length = Math.hypot(...push[i]) || 1;
      at[i][0] += (push[i][0] / length) * Math.min(length, heat);
      at[i][1] += (push[i][1] / length) * Math.min(length, heat);
    }
  }
  return at;
}

function route(drawing) {
  const next = new Map();
  for (const [u, v, , , marks] of drawing.edges) {
    if (!(marks & GOLD)) continue;
    next.set(u, [...(next.get(u) || []), v]);
    next.set(v, [...(next.get(v) || []), u]);
  }
  const order = [];
  const seen = new Set();
  const walk = (node) => {
    while (node !== undefined && !seen.has(node)) {
      seen.add(node);
      order.push(node);
      node = (next.get(node) || []).find((other) => !seen.has(other));
    }
  };
  for (const [node, near] of next) if (near.length === 1) walk(node);
  drawing.nodes.forEach((_, node) => walk(node));
  return order;
}

function scaled(at) {
  const xs = spread(at.map(([x]) => x));
  const ys = spread(at.map(([, y]) => y));
  return at.map((_, node) => [56 + (WIDE - 112) * xs[node], 26 + (TALL - 52) * ys[node]]);
}

// From 0 to 1, halfway between the distances and the mere order: one far node does not press the others together.
function spread(values) {
  const least = Math.min(...values);
  const width = Math.max(...values) - least;
  if (width < 1e-9) return values.map(() => 0.5);
  const sorted = [...new Set(values.map((each) => Math.round((each - least) / width * 1e6)))].sort((a, b) => a - b);
  const rank = new Map(sorted.map((each, place) => [each, place / (sorted.length - 1)]));
  return values.map((each) => (each - least) / width / 2 + rank.get(Math.round((each - least) / width * 1e6)) / 2);
}

function drawGraph(drawing) {
  const at = scaled(places(drawing));
  const n = drawing.nodes.length;
  const radius = n > 60 ? 4 : n > 30 ? 5.5 : 7;
  const dense = drawing.edges.length > 150;
  const halos = svg("g", {});
  const edges = svg("g", {});
  const nodes = svg("g", {});
  const labels = svg("g", {});
  for (const [u, v, state, text, marks] of drawing.edges) {
    const [[x1, y1], [x2, y2]] = [at[u], at[v]];
    const ends = { x1: x1.toFixed(1), y1: y1.toFixed(1), x2: x2.toFixed(1), y2: y2.toFixed(1) };
    if (marks & GOLD) halos.append(svg("line", { ...ends, class: "halo gold" }));
    if (marks & SAID) halos.append(svg("line", { ...ends, class: "halo said" }));
    const faint = dense && (state === "plain" || state === "match") ? " dense" : "";
    edges.append(svg("line", { ...ends, class: `e ${state}${faint}` }, svg("title", {},
      `${drawing.nodes[u][0]} ${drawing.directed ? "→" : "–"} ${drawing.nodes[v][0]}${text ? `: ${text}` : ""} (${state})`)));
    if (drawing.directed) edges.append(arrow(at[u], at[v], radius));
    if (text && (!dense && drawing.edges.length <= 45 || state === "weight" || marks)) {
      labels.append(svg("text", { class: "weight", x: ((x1 + x2) / 2).toFixed(1), y: ((y1 + y2) / 2 + 3).toFixed(1) }, text));
    }
  }
  drawing.nodes.forEach(([label, marks, role, tag], node) => {
    const [x, y] = at[node].map((each) => each.toFixed(1));
    const style = `v${marks & VISITED ? " visited" : ""}${marks & GOLD ? " gold" : ""}${["unknown", "target"].includes(role) ? ` ${role}` : ""}`;
    const notes = [role, tag].filter(Boolean).join(", ");
    nodes.append(svg("circle", { class: style, cx: x, cy: y, r: role && role !== "unknown" ? radius + 2 : radius },
      svg("title", {}, notes ? `${label} (${notes})` : label)));
    if (marks & SAID) nodes.append(svg("circle", { class: "ring", cx: x, cy: y, r: radius + 4 }));
    if (n <= 60) {
      const right = at[node][0] > WIDE * 0.62;
      const shown = cut(label, 18) + (notes ? ` (${cut(notes, 14)})` : "");
      labels.append(svg("text", { x: at[node][0] + (right ? -1 : 1) * (radius + 4), y: at[node][1] + 4,
        class: right ? "end" : null }, shown));
    }
  });
  return svg("svg", { class: "graph", viewBox: `0 0 ${WIDE} ${TALL}`, role: "img",
    "aria-label": `Graph of ${n} nodes and ${drawing.edges.length} edges: ${visible(drawing.note)}` }, halos, edges, nodes, labels);
}

function arrow([x1, y1], [x2, y2], radius) {
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
  const [x, y] = [x2 - dx * (radius + 1), y2 - dy * (radius + 1)];
  const points = [[x, y], [x - 7 * dx + 3 * dy, y - 7 * dy - 3 * dx], [x - 7 * dx - 3 * dy, y - 7 * dy + 3 * dx]];
  return svg("polygon", { class: "arrow", points: points.map((each) => each.map((c) => c.toFixed(1)).join(",")).join(" ") });
}

const STATES = { match: "in both", missing: "only in the true graph", extra: "only in the written graph", weight: "other weight", plain: "edge" };

// What the colours mean, with counts, and the differences as text.
function graphCard(drawing) {
  const counts = {};
  for (const [, , state] of drawing.edges) counts[state] = (counts[state] || 0) + 1;
  const keys = Object.keys(STATES).filter((state) => counts[state]).map((state) =>
    el("span", {}, el("span", { class: `key ${state}` }), `${STATES[state]} ${counts[state]}`));
  const has = (bit) => drawing.edges.some((edge) => edge[4] & bit);
  if (has(GOLD)) keys.push(el("span", {}, el("span", { class: "key gold" }), "true answer"));
  if (has(SAID)) keys.push(el("span", {}, el("span", { class: "key said" }), "given answer"));
  const nodeKeys = [[GOLD, "gold", "in the true answer"], [SAID, "said", "in the given answer"], [VISITED, "visited", "visited"]];
  for (const [bit, name, text] of nodeKeys) {
    const count = drawing.nodes.filter((node) => node[1] & bit).length;
    if (count) keys.push(el("span", {}, el("span", { class: `key dot ${name}` }), `${text} ${count}`));
  }
  const unknown = drawing.nodes.filter((node) => node[2] === "unknown").length;
  if (drawing.nodes.some((node) => node[2] === "target")) keys.push(el("span", {}, el("span", { class: "key dot target" }), "target"));
  if (unknown) keys.push(el("span", {}, el("span", { class: "key dot unknown" }), `unknown node ${unknown}`));
  const wrong = drawing.edges.filter((edge) => ["missing", "extra", "weight"].includes(edge[2]));
  const names = drawing.nodes.map((node) => node[0]);
  return el("section", { class: "card" }, el("h2", {}, "Graph"), el("p", { class: "quiet" }, drawing.note),
    drawGraph(drawing), el("div", { class: "legend" }, keys),
    wrong.length ? el("details", {}, el("summary", {}, `${wrong.length} differing edges`),
      prose(wrong.map(([u, v, state, text]) => `${STATES[state]}: ${names[u]} ${drawing.directed ? "→" : "–"} ${names[v]}${text ? ` (${text})` : ""}`).join("\n"))) : null);
}
