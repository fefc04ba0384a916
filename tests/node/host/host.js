// A host of MCP Apps as small as one can be, on the official AppBridge: two frames, two origins, and a note of all that a view does.
//
// Tools are called through the official client at config.mcp, or, where there is none, by window.answer(name, arguments), which
// whoever opened this page has put there.

import { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const state = { calls: [], said: [], notes: [], links: [], sizes: [], client: null, bridge: null, frame: null, config: null, first: null };

async function connect(config) {
  const client = new Client({ name: "small-host", version: "1.0.0" }, { capabilities: {} });
  const requestInit = { headers: { Authorization: `Bearer ${config.bearer}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(config.mcp), { requestInit }));
  return client;
}

async function callTool({ name, arguments: given }) {
  const began = performance.timeOrigin + performance.now();
  const said = state.client ? await state.client.callTool({ name, arguments: given }) : JSON.parse(await window.answer(name, JSON.stringify(given)));
  state.calls.push({ name, given, began, ended: performance.timeOrigin + performance.now() });
  return said;
}

async function page(config) {
  if (!state.client) return config.html;
  const read = await state.client.readResource({ uri: config.resource });
  state.content = read.contents[0];
  return state.content.text;
}

async function open(first) {
  const { config } = state;
  const frame = document.createElement("iframe");
  const ready = new Promise((resolve) => {
    const hear = (event) => {
      if (event.source === frame.contentWindow && event.data.method === "ui/notifications/sandbox-proxy-ready") {
        removeEventListener("message", hear);
        resolve();
      }
    };
    addEventListener("message", hear);
  });
  frame.title = "The view";
  frame.src = config.sandbox;
  document.getElementById("chat").append(frame);
  await ready;
  const can = { openLinks: {}, serverTools: {}, message: { text: {} }, updateModelContext: { text: {}, structuredContent: {} }, ...config.can };
  for (const name of config.cannot || []) delete can[name];
  const known = state.client ? (await state.client.listTools()).tools.find((tool) => tool.name === config.named) : undefined;
  const hostContext = { ...(known ? { toolInfo: { tool: known } } : {}), theme: config.theme, locale: "en-GB", timeZone: "Europe/Berlin", displayMode: "inline", ...config.context };
  const bridge = new AppBridge(null, { name: "small-host", version: "1.0.0" }, can, { hostContext });
  bridge.oncalltool = callTool;
  bridge.onmessage = async (params) => {
    state.said.push(params.content.map((part) => part.text).join(""));
    say(state.said.at(-1));
    return config.deaf ? { isError: true } : {};
  };
  bridge.onopenlink = async ({ url }) => (state.links.push(url), {});
  bridge.onupdatemodelcontext = async (params) => (state.notes.push(params), {});
  bridge.onsizechange = ({ height }) => {
    state.sizes.push(height);
    if (height) frame.style.height = `${height + 2}px`;
  };
  const begun = new Promise((resolve) => (bridge.oninitialized = resolve));
  await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
  await bridge.sendSandboxResourceReady({ html: await page(config) });
  await begun;
  await bridge.sendToolInput({ arguments: config.arguments || {} });
  Object.assign(state, { bridge, frame });
  if (first) await bridge.sendToolResult(first);
}

function say(text) {
  const line = document.createElement("p");
  line.className = "said";
  line.textContent = text;
  document.getElementById("chat").append(line);
}

window.host = {
  state,
  /** Call the tool as a model would, and show its view. */
  async start(config) {
    state.config = config;
    if (config.theme) document.documentElement.dataset.theme = config.theme;
    config.named = config.named || config.tool;
    if (config.prompt) say(config.prompt);
    if (config.mcp && !state.client) state.client = await connect(config);
    state.first = config.first || (config.tool ? await callTool({ name: config.tool, arguments: config.arguments }) : null);
    await open(state.first);
    return state.first;
  },
  /** Call a tool without any view. */
  async call(config, name, given) {
    if (config.mcp && !state.client) state.client = await connect(config);
    return callTool({ name, arguments: given });
  },
  result: (said) => state.bridge.sendToolResult(said),
  cancelled: (reason) => state.bridge.sendToolCancelled({ reason }),
  context: (given) => state.bridge.setHostContext({ ...given }),
  /** Tell the view to go, and leave it where it is. */
  rest: () => state.bridge.teardownResource({}),
  /** Show it again, from the first answer alone. */
  again: () => open(state.first),
};
