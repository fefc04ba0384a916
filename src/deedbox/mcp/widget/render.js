// Any value as elements. Whatever a model, a document or a provider wrote is text here and nothing else: no markup is ever read.

const MOST_TEXT = 4000;
const MOST_ITEMS = 50;
const DEEP = 4;
const TITLES = ["title", "name", "label", "headline", "subject"];
const REASONS = ["reason", "why", "because", "explanation", "rationale", "description", "summary"];
const PRICES = ["price", "amount", "cost", "total"];
const LEADS = ["summary", "headline", "answer", "message"];
const INITIALS = new Set(["id", "url", "sku", "iban", "vat", "eur", "usd", "gbp", "crm", "api", "pdf", "csv"]);
// Control and direction characters, which only ever mislead a reader.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

let locale;
let timeZone;

function speaks(tag, zone) {
  try {
    locale = tag && Intl.getCanonicalLocales(tag)[0];
    timeZone = zone && Intl.DateTimeFormat(locale, { timeZone: zone }) && zone;
  } catch {
    locale = timeZone = undefined;
  }
}

function clean(value) {
  const text = String(value).replace(HIDDEN, (found) => `[U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
  return text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text;
}

function element(name, className, ...inner) {
  const made = document.createElement(name);
  if (className) made.className = className;
  for (const part of inner) if (part !== null && part !== undefined) made.append(part);
  return made;
}

function words(name) {
  const said = clean(name).replace(/[_-]+/g, " ").trim().split(/\s+/).map((word) => (INITIALS.has(word.toLowerCase()) ? word.toUpperCase() : word)).join(" ");
  return said.charAt(0).toUpperCase() + said.slice(1);
}

const isScalar = (value) => value === null || typeof value !== "object";
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const first = (value, names) => names.find((name) => typeof value[name] === "string" && value[name].trim());

function numberOf(value) {
  if (typeof value === "number") return value;
  return typeof value === "string" && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : null;
}

function money(value, currency) {
  try {
    return new Intl.NumberFormat(locale, { style: "currency", currency }).format(value);
  } catch {
    return `${new Intl.NumberFormat(locale).format(value)} ${clean(currency)}`.trim();
  }
}

function scalar(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "Yes" : "No";
  if (typeof value === "number") return new Intl.NumberFormat(locale, { maximumFractionDigits: 6 }).format(value);
  const text = clean(value);
  if (/^\d{4}-\d\d-\d\d$/.test(text)) return when(`${text}T00:00:00Z`, { dateStyle: "medium", timeZone: "UTC" }, text);
  if (/^\d{4}-\d\d-\d\dT\d\d:\d\d/.test(text) && text.length < 40) return when(text, { dateStyle: "medium", timeStyle: "short", timeZone }, text);
  return text;
}

function when(text, how, otherwise) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? otherwise : new Intl.DateTimeFormat(locale, how).format(date);
}

function facts(pairs) {
  const list = element("dl", "facts");
  for (const [name, value] of pairs) list.append(element("div", "", element("dt", "", words(name)), element("dd", "", scalar(value))));
  return pairs.length ? list : null;
}

function card(item, depth) {
  const title = first(item, TITLES);
  const used = new Set([title]);
  const made = element("li", "", element("h3", "", clean(item[title])));
  const price = PRICES.find((name) => numberOf(item[name]) !== null);
  if (price) {
    used.add(price);
    const currency = typeof item.currency === "string" ? item.currency : "";
    if (currency) used.add("currency");
    made.append(element("p", "price", currency ? money(numberOf(item[price]), currency) : scalar(numberOf(item[price]))));
  }
  const reason = first(item, REASONS.filter((name) => !used.has(name)));
  if (reason) {
    used.add(reason);
    made.append(element("p", "why words", clean(item[reason])));
  }
  const rest = Object.entries(item).filter(([name, value]) => !used.has(name) && value !== null && value !== "");
  const short = rest.filter(([, value]) => isScalar(value));
  made.append(facts(short.slice(0, 12)) || "");
  const long = Object.fromEntries(rest.filter(([, value]) => !isScalar(value)));
  if (Object.keys(long).length) made.append(element("div", "rest", ...rows(long, depth + 1)));
  return made;
}

function list(items, depth) {
  const shown = items.slice(0, MOST_ITEMS);
  const more = items.length > shown.length ? element("p", "soft", `and ${items.length - shown.length} more`) : null;
  if (!items.length) return [element("p", "soft", "None.")];
  if (shown.every((item) => isObject(item) && first(item, TITLES))) return [element("ol", "cards", ...shown.map((item) => card(item, depth))), more];
  if (shown.every(isScalar)) return [element("ul", "list", ...shown.map((item) => element("li", "words", scalar(item)))), more];
  return [element("ol", "cards", ...shown.map((item) => element("li", "", element("div", "rest", ...value(item, depth + 1))))), more];
}

function rows(object, depth) {
  const made = [];
  const plain = Object.entries(object).filter(([, inner]) => isScalar(inner));
  if (plain.length) {
    const table = element("dl", "rows");
    for (const [name, inner] of plain.slice(0, MOST_ITEMS)) table.append(element("dt", "", words(name)), element("dd", "", scalar(inner)));
    made.push(table);
  }
  for (const [name, inner] of Object.entries(object).filter(([, one]) => !isScalar(one)).slice(0, MOST_ITEMS)) {
    made.push(element("h3", "", words(name)), ...value(inner, depth + 1));
  }
  return made.length ? made : [element("p", "soft", "Nothing.")];
}

function value(given, depth = 0) {
  if (isScalar(given)) return [element("p", "words", scalar(given))];
  if (depth > DEEP) return [element("pre", "", clean(JSON.stringify(given, null, 1)))];
  return Array.isArray(given) ? list(given, depth) : rows(given, depth);
}

/** A result: its own sentence first, then what it lists, and all the rest where it does not get in the way. */
function shown(output) {
  if (!isObject(output)) return value(output);
  if (output.too_large === true) return [element("p", "", `The result is too long to be shown here (${scalar(Math.ceil(output.size / 1024))} KiB). Ask for a part of it in the chat.`)];
  const rest = { ...output };
  const made = [];
  const lead = first(output, LEADS);
  if (lead) {
    made.push(element("p", "lead words", clean(output[lead])));
    delete rest[lead];
  }
  const lists = Object.entries(output).filter(([, inner]) => Array.isArray(inner) && inner.length && inner.every((item) => isObject(item) && first(item, TITLES)));
  for (const [name, inner] of lists) {
    if (lists.length > 1) made.push(element("h3", "", words(name)));
    made.push(...list(inner, 0));
    delete rest[name];
  }
  if (!Object.keys(rest).length) return made;
  if (!lists.length) return [...made, ...rows(rest, 0)];
  made.push(element("details", "", element("summary", "", "More about this result"), element("div", "body", ...rows(rest, 0))));
  return made;
}
