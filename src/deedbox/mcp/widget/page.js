// One job as its reader sees it. All of it can be had again from the job's number: a view may vanish and come back at any time.

// The server keeps a question open for so long where nothing happens; the pause comes after that.
const WAIT_S = 4;
const SOON_MS = 100;
const SLOWEST_MS = 2500;
const SLOWEST_WAITING_MS = 8000;
const TROUBLE_MS = 1000;
const LONGEST_TROUBLE_MS = 30000;
const NUMBER = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/i;
const STATES = {
  queued: "Waiting", running: "Working", awaiting_human: "Needs approval", dispatching: "Sending", completed: "Done",
  failed_terminal: "Failed", failed_retryable: "Failed", canceled: "Canceled",
};
const ENDS = { APPROVAL_REJECTED: "Rejected", APPROVAL_EXPIRED: "Expired", PARTIALLY_DONE: "Partly done" };

const $ = (id) => document.getElementById(id);

const job = {
  id: null, action: null, title: null, after: 0, retries: [], over: false, asked: false, noted: false,
  delay: SOON_MS, troubles: 0, timer: null, polling: false, torn: false, was: {},
};

function put(id, text) {
  const where = $(id);
  const said = text ? clean(text) : "";
  if (where.textContent !== said) where.textContent = said;
  where.hidden = !said;
}

function fill(id, given) {
  const text = JSON.stringify(given);
  if (job.was[id] === text) return;
  job.was[id] = text;
  $(id).replaceChildren(element("div", "body", ...shown(given)));
}

function badge(text, is) {
  $("badge").textContent = text;
  $("badge").dataset.is = is;
}

function named(action, title) {
  if (job.title || !action || action === "get_job" || action === "cancel_job") return;
  $("title").textContent = document.title = title ? clean(title) : words(action);
}

/** The answer of the call that this view was opened for, of whatever kind. */
function begun(said) {
  const envelope = envelopeOf(said);
  const id = (envelope && envelope.job_id) || (NUMBER.exec(wordsOf(said)) || [null])[0];
  if (!envelope && !id) return refused(wordsOf(said));
  if (id && id !== job.id) start(id, envelope);
  else if (envelope && !id) {
    named(envelope.action);
    ended(envelope, { errors: envelope.errors });
  }
  return undefined;
}

function start(id, envelope) {
  Object.assign(job, { id, after: 0, retries: [], over: false, noted: false, delay: SOON_MS, troubles: 0, was: {} });
  put("number", `Job ${id}`);
  host.keep(id);
  if (envelope) {
    named(envelope.action);
    if (envelope.status === "pending") under(envelope, envelope.data || {});
  }
  soon(0);
}

function refused(text) {
  badge("Failed", "bad");
  put("say", text);
  job.over = true;
}

// Polling: one question at a time, slower while nothing happens, none while nobody can see it.

function soon(delay) {
  clearTimeout(job.timer);
  if (!job.torn && job.id && !job.over) job.timer = setTimeout(poll, delay);
}

async function poll() {
  if (job.polling || job.torn || job.over || !job.id || document.hidden) return;
  job.polling = true;
  const id = job.id;
  try {
    const envelope = await host.callTool("get_job", { job_id: id, after: job.after, wait_s: WAIT_S });
    if (id !== job.id || job.torn) return;
    if (envelope.action === "get_job" || !isObject(envelope.data)) answerless(envelope);
    else seen(envelope);
  } catch {
    trouble("The connection is interrupted; the job goes on, and this view tries again.");
  } finally {
    job.polling = false;
    soon(job.delay);
  }
}

function answerless(envelope) {
  if (envelope.retryable) return trouble(envelope.human_message);
  return refused(envelope.human_message);
}

function trouble(text) {
  job.troubles += 1;
  job.delay = Math.min(TROUBLE_MS * 2 ** (job.troubles - 1), LONGEST_TROUBLE_MS);
  put("trouble", text);
}

function seen(envelope) {
  const data = envelope.data;
  const events = Array.isArray(data.events) ? data.events : [];
  job.troubles = 0;
  put("trouble", "");
  named(envelope.action, data.title);
  for (const event of events) if (event.type === "job.retrying") job.retries.push(event.payload || {});
  if (typeof data.next_after === "number") job.after = data.next_after;
  const slowest = data.state === "awaiting_human" ? SLOWEST_WAITING_MS : SLOWEST_MS;
  job.delay = events.length ? SOON_MS : Math.min(job.delay * 1.6, slowest);
  if (envelope.status === "pending") return under(envelope, data);
  // What came before the end is told too: a view that was opened late pages through it.
  if (data.complete === false) return undefined;
  return ended(envelope, data);
}

// What is shown.

function under(envelope, data) {
  const waits = data.state === "awaiting_human";
  const retrying = data.reason === "retrying";
  badge(job.asked ? "Stopping" : retrying ? "Trying again" : STATES[data.state] || "Working", waits || retrying ? "waits" : "");
  const progress = data.progress;
  const running = data.state === "running" || retrying;
  put("say", job.asked ? "It was told to stop." : data.state === "running" && progress ? "" : envelope.human_message);
  $("bar").hidden = waits || (!progress && !running);
  if (progress && progress.total_steps) {
    $("progress").max = progress.total_steps;
    $("progress").value = progress.step;
  } else $("progress").removeAttribute("value");
  put("step", progress ? progress.message || `Step ${progress.step} of ${progress.total_steps}` : "Just begun");
  put("tries", data.state === "running" ? tries(data, false) : "");
  $("tries").dataset.is = "";
  approval(data.approval);
  const partial = data.partial;
  $("draft").hidden = !(partial && partial.value !== undefined && partial.withheld !== true);
  if (!$("draft").hidden) fill("draft-body", partial.value);
  $("cancel").hidden = job.asked || !$("sure").hidden || data.state === "dispatching";
}

function tries(data, over) {
  const attempt = data.attempt || 1;
  if (attempt < 2) return "";
  const last = job.retries[job.retries.length - 1];
  const why = last && last.message ? ` The last problem: ${String(last.message).replace(/\.?$/, ".")}` : "";
  if (over) return `It took ${attempt} attempts.${why}`;
  return `Attempt ${attempt} of ${data.max_attempts}; the earlier ones did not work, and it goes on where it was.${why}`;
}

function ended(envelope, data) {
  job.over = true;
  clearTimeout(job.timer);
  const good = envelope.status === "success";
  const stopped = data.state === "canceled";
  badge(ENDS[envelope.error_code] || STATES[data.state] || (good ? "Done" : "Failed"), good ? "done" : stopped ? "" : "bad");
  for (const id of ["bar", "draft", "approval", "cancel", "sure", "refused"]) $(id).hidden = true;
  const result = data.result;
  const leads = good && isObject(result) && first(result, LEADS);
  put("say", leads ? "" : envelope.human_message);
  put("tries", tries(data, true));
  $("tries").dataset.is = "over";
  $("result").hidden = result === null || result === undefined || (isObject(result) && !Object.keys(result).length);
  if (!$("result").hidden) fill("result-body", result);
  const errors = (envelope.errors || []).map((error) => [error.pointer || error.slot, error.message].filter(Boolean).map(clean).join(": "));
  $("errors").replaceChildren(...errors.slice(0, MOST_ITEMS).map((text) => element("li", "", text)));
  $("errors").hidden = !errors.length;
  follow(good && Array.isArray(data.follow_ups) ? data.follow_ups : []);
  if (!job.noted && job.id) {
    job.noted = true;
    const text = `Job ${job.id} (${envelope.action}) has ended: ${envelope.status}. ${envelope.human_message} get_job with this job_id gives its whole result.`;
    host.note(text, { job_id: job.id, action: envelope.action, status: envelope.status, error_code: envelope.error_code || null });
  }
}

function follow(offers) {
  $("next").hidden = !offers.length;
  $("next-buttons").replaceChildren(...offers.map((offer) => {
    const button = element("button", "", clean(offer.label));
    button.type = "button";
    button.addEventListener("click", () => asks(offer, button));
    return button;
  }));
}

async function asks(offer, button) {
  const by = `Not taken over by the chat. You can say it yourself: “${offer.message}”`;
  if (!host.canSay) return put("next-said", by);
  button.disabled = true;
  const took = await host.say(offer.message).catch(() => false);
  button.disabled = false;
  return put("next-said", took ? `Asked in the chat: “${offer.message}”` : by);
}

// Approval and cancel.

function approval(given) {
  $("approval").hidden = !given;
  if (!given) return;
  job.approval = given;
  const may = given.may_decide === true && Boolean(given.digest);
  const lines = Array.isArray(given.sentences) ? given.sentences : [];
  put("approval-what", given.purpose === "input" ? "A person approves what was asked for before it runs." : "Nothing leaves before a person has approved it.");
  $("approval-effects").replaceChildren(...lines.slice(0, MOST_ITEMS).map((line) => element("li", "", clean(line))));
  $("approval-effects").hidden = !lines.length;
  const parts = may && Array.isArray(given.parts) ? given.parts : [];
  $("approval-parts").hidden = !parts.length;
  fillParts(parts);
  put("approval-then", may ? [given.on_yes && `If you approve: ${given.on_yes}`, given.on_no && `If you reject: ${given.on_no}`].filter(Boolean).join(" ") : given.why_not);
  put("approval-until", given.expires_at ? `It lapses ${scalar(given.expires_at)}.` : "");
  $("approve").hidden = $("reject").hidden = !may;
  if (!may) $("why").hidden = true;
  $("open").hidden = !given.url || !host.canOpen;
  put("approval-link", given.url && !host.canOpen ? `The approval page: ${given.url}` : "");
}

/** Exactly what is decided, value by value; what looks like markup or an address in it is shown as it stands. */
function fillParts(parts) {
  const text = JSON.stringify(parts);
  if (job.was.parts === text) return;
  job.was.parts = text;
  $("approval-parts").replaceChildren(...parts.map((part) => {
    const table = element("dl", "rows");
    for (const row of part.rows || []) table.append(element("dt", "", clean(row.label)), element("dd", "", clean(row.value)));
    return element("div", "part", element("h3", "", words(part.name)), table);
  }));
}

async function act(buttons, tool, args, sentence) {
  for (const id of buttons) $(id).disabled = true;
  put("refused", "");
  try {
    const envelope = await host.callTool(tool, args);
    // A job that has ended meanwhile is an answer as well: the next look at it says so.
    if (envelope.status === "error" && !envelope.data) put("refused", envelope.human_message);
    else sentence();
  } catch {
    put("refused", "That did not get through; please try again.");
  } finally {
    for (const id of buttons) $(id).disabled = false;
    job.delay = SOON_MS;
    soon(0);
  }
}

/** The first press asks why, the second one rejects. */
function reject() {
  if ($("why").hidden) {
    $("why").hidden = false;
    $("reject").setAttribute("aria-expanded", "true");
    return $("reason").focus();
  }
  const reason = $("reason").value.trim();
  if (!reason) {
    put("refused", "Say in a few words why it is rejected.");
    return $("reason").focus();
  }
  return decide("reject", { reason });
}

function decide(decision, more = {}) {
  const { approval_id, digest } = job.approval;
  return act(["approve", "reject"], "decide_approval", { approval_id, digest, decision, ...more }, () => {
    $("why").hidden = true;
    put("approval-what", decision === "approve" ? "Approved." : "Rejected.");
    $("approve").hidden = $("reject").hidden = true;
  });
}

function sure(asking) {
  $("sure").hidden = !asking;
  $("cancel").hidden = asking;
  (asking ? $("keep") : $("cancel")).focus();
}

function stop() {
  return act(["stop", "keep"], "cancel_job", { job_id: job.id }, () => {
    job.asked = true;
    $("sure").hidden = true;
    badge("Stopping", "");
    put("say", "It was told to stop.");
  });
}

// The frame around it.

const host = new Host({
  context(given) {
    if (given.theme === "light" || given.theme === "dark") document.documentElement.dataset.theme = given.theme;
    if (given.locale || given.timeZone) speaks(given.locale, given.timeZone);
    const sans = given.styles && given.styles.variables && given.styles.variables["--font-sans"];
    if (sans) document.documentElement.style.setProperty("--font-sans", String(sans));
    const tool = given.toolInfo && given.toolInfo.tool;
    if (tool && (tool.title || tool.name)) {
      job.title = tool.title ? clean(tool.title) : words(tool.name);
      $("title").textContent = document.title = job.title;
    }
  },
  input() {
    if (!job.id) put("say", "It is being started.");
  },
  result: begun,
  cancelled() {
    if (!job.id) refused("The chat stopped the call before a job was started.");
  },
  teardown() {
    job.torn = true;
    clearTimeout(job.timer);
  },
});

function main() {
  $("cancel").addEventListener("click", () => sure(true));
  $("keep").addEventListener("click", () => sure(false));
  $("stop").addEventListener("click", stop);
  $("approve").addEventListener("click", () => decide("approve"));
  $("reject").addEventListener("click", reject);
  $("open").addEventListener("click", async () => {
    const took = await host.openLink(job.approval.url).catch(() => false);
    if (!took) put("approval-link", `The approval page: ${job.approval.url}`);
  });
  document.addEventListener("visibilitychange", () => {
    clearTimeout(job.timer);
    if (!document.hidden) {
      job.delay = SOON_MS;
      soon(0);
    }
  });
  let height = 0;
  new ResizeObserver(() => {
    const now = Math.ceil($("job").getBoundingClientRect().height);
    if (now !== height) host.size((height = now));
  }).observe($("job"));
  host.greet().then((speaks) => {
    if (height) host.size(height);
    const kept = speaks ? null : host.kept();
    if (kept) begun(kept);
    else if (!speaks && !host.openai) put("say", "This page shows a job inside a chat that opens it.");
  });
  window.addEventListener("openai:set_globals", () => {
    const kept = job.id ? null : host.kept();
    if (kept) begun(kept);
  });
}

main();
