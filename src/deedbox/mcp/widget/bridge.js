// The host, over JSON-RPC in messages (MCP Apps, 2026-01-26), with window.openai where it is there and the bridge is not.

const VERSION = "2026-01-26";
const ANSWER_MS = 65000;
const GREET_MS = 4000;

class HostError extends Error {}

class Host {
  constructor(hear) {
    this.hear = hear;
    this.open = new Map();
    this.last = 0;
    this.target = "*";
    this.can = {};
    this.speaks = false;
    this.gone = false;
    window.addEventListener("message", (event) => this.take(event));
  }

  /** Greet the host. Whether it speaks the bridge. */
  async greet() {
    if (window.parent === window) return false;
    try {
      const said = await this.ask("ui/initialize", {
        appInfo: { name: "deedbox-job", title: "Deedbox job", version: "1" },
        appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
        protocolVersion: VERSION,
      }, GREET_MS);
      this.can = said.hostCapabilities || {};
      this.speaks = true;
      this.hear.context(said.hostContext || {});
      this.tell("ui/notifications/initialized", {});
      return true;
    } catch {
      return false;
    }
  }

  send(message) {
    if (!this.gone) window.parent.postMessage({ jsonrpc: "2.0", ...message }, this.target);
  }

  tell(method, params) {
    this.send({ method, params });
  }

  ask(method, params, within = ANSWER_MS) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.open.delete(id);
        reject(new HostError("no answer"));
      }, within);
      this.open.set(id, { resolve, reject, timer });
      this.send({ id, method, params });
    });
  }

  take(event) {
    const message = event.data;
    if (event.source !== window.parent || !message || message.jsonrpc !== "2.0") return;
    if (message.method === undefined) {
      const waits = this.open.get(message.id);
      if (!waits) return;
      this.open.delete(message.id);
      clearTimeout(waits.timer);
      // From the first answer on, only that origin is spoken to.
      if (this.target === "*" && event.origin && event.origin !== "null") this.target = event.origin;
      if (message.error) waits.reject(new HostError(String(message.error.message || "refused")));
      else waits.resolve(message.result || {});
      return;
    }
    this.called(message);
  }

  called({ id, method, params = {} }) {
    const answers = id !== undefined;
    if (method === "ui/resource-teardown") {
      this.hear.teardown();
      this.send({ id, result: {} });
      this.gone = true;
    } else if (method === "ping") {
      this.send({ id, result: {} });
    } else if (method === "ui/notifications/tool-input") this.hear.input(params.arguments || {});
    else if (method === "ui/notifications/tool-result") this.hear.result(params);
    else if (method === "ui/notifications/tool-cancelled") this.hear.cancelled(params.reason);
    else if (method === "ui/notifications/host-context-changed") this.hear.context(params);
    else if (answers) this.send({ id, error: { code: -32601, message: "Method not found" } });
  }

  /** window.openai where it is there and the bridge was not answered. */
  get openai() {
    return !this.speaks && typeof window.openai === "object" ? window.openai : null;
  }

  /** Call a tool of the server. The structured answer, or an error with words. */
  async callTool(name, args) {
    const openai = this.openai;
    const said = openai && openai.callTool ? await openai.callTool(name, args) : await this.ask("tools/call", { name, arguments: args });
    return envelopeOf(said) || { status: "error", action: name, job_id: null, human_message: wordsOf(said), retryable: false, error_code: null, errors: [] };
  }

  get canSay() {
    return this.speaks ? this.can.message !== undefined : Boolean(this.openai && this.openai.sendFollowUpMessage);
  }

  /** Say something in the reader's name. Whether the host took it. */
  async say(text) {
    const openai = this.openai;
    if (openai && openai.sendFollowUpMessage) {
      await openai.sendFollowUpMessage({ prompt: text });
      return true;
    }
    const said = await this.ask("ui/message", { role: "user", content: [{ type: "text", text }] });
    return !said.isError;
  }

  get canOpen() {
    return this.speaks ? this.can.openLinks !== undefined : Boolean(this.openai && this.openai.openExternal);
  }

  async openLink(url) {
    const openai = this.openai;
    if (openai && openai.openExternal) {
      openai.openExternal({ href: url });
      return true;
    }
    const said = await this.ask("ui/open-link", { url });
    return !said.isError;
  }

  /** Let the model know how it stands; it costs nobody a turn. */
  async note(text, structured) {
    const takes = this.can.updateModelContext;
    if (!this.speaks || takes === undefined) return;
    const params = { content: [{ type: "text", text }] };
    if (takes.structuredContent !== undefined) params.structuredContent = structured;
    await this.ask("ui/update-model-context", params).catch(() => undefined);
  }

  size(height) {
    if (this.speaks) this.tell("ui/notifications/size-changed", { height });
    const openai = this.openai;
    if (openai && openai.notifyIntrinsicHeight) openai.notifyIntrinsicHeight(height);
  }

  /** Keep the job's number where the host keeps things for views. */
  keep(jobId) {
    if (typeof window.openai === "object" && window.openai && window.openai.setWidgetState) window.openai.setWidgetState({ job_id: jobId });
  }

  /** What the host has kept or handed over, outside the bridge. */
  kept() {
    const openai = typeof window.openai === "object" ? window.openai : null;
    if (!openai) return null;
    if (openai.toolOutput && openai.toolOutput.status) return openai.toolOutput;
    return openai.widgetState && openai.widgetState.job_id ? { status: "pending", job_id: openai.widgetState.job_id } : null;
  }
}

function envelopeOf(said) {
  const found = said && (said.structuredContent || said);
  return found && typeof found === "object" && typeof found.status === "string" && "human_message" in found ? found : null;
}

function wordsOf(said) {
  const parts = said && Array.isArray(said.content) ? said.content : [];
  const words = parts.filter((part) => part && part.type === "text").map((part) => String(part.text)).join(" ").trim();
  return words || "The answer cannot be read.";
}
