// The list of episodes by column, and the episodes themselves, which are unpacked when one is opened.

const INDEX = JSON.parse(document.getElementById("index").textContent);
const COUNT = INDEX.columns.id.length;
const CHUNKS = document.querySelectorAll("script.chunk");
const unpacked = new Map();

function value(column, row) {
  if (column in INDEX.columns) {
    const found = INDEX.columns[column];
    return Array.isArray(found) ? found[row] : found.values[found.codes[row]];
  }
  if (column in INDEX.texts) {
    const { values, codes } = INDEX.texts[column];
    return codes[row] < 0 ? null : values[codes[row]];
  }
  return INDEX.parts[column.slice("part:".length)][row];
}

async function episodeAt(row) {
  const chunk = INDEX.columns.chunk[row];
  if (!unpacked.has(chunk)) {
    if (unpacked.size > 20) unpacked.delete(unpacked.keys().next().value);
    unpacked.set(chunk, unpack(CHUNKS[chunk].textContent));
  }
  return (await unpacked.get(chunk))[INDEX.columns.place[row]];
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const MEMBERS = new Map();
INDEX.columns.group.codes.forEach((code, row) => {
  if (!MEMBERS.has(code)) MEMBERS.set(code, []);
  MEMBERS.get(code).push(row);
});

const members = (row) => MEMBERS.get(INDEX.columns.group.codes[row]);
const policies = INDEX.texts.policy.values.length;
const hasAttempts = INDEX.columns.attempt.some((attempt) => attempt > 0);

// What tells one member of a group from the others.
function memberName(row) {
  const parts = [];
  if (policies > 1) parts.push(value("policy", row));
  if (hasAttempts || policies === 1) parts.push(`attempt ${value("attempt", row)}`);
  return parts.join(", ");
}
