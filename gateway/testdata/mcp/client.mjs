// Uses the server at a URL as an MCP client does, and prints what it got as JSON: node client.mjs URL MODE.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

const [url, mode] = process.argv.slice(2);
const got = { progress: [], logs: 0, sampled: 0, roots: 0 };
const client = new Client({ name: "test", version: "1" }, { capabilities: { sampling: {}, roots: { listChanged: true } } });
client.setRequestHandler(CreateMessageRequestSchema, () => {
  got.sampled++;
  return { model: "none", role: "assistant", content: { type: "text", text: "sampled text" } };
});
client.setRequestHandler(ListRootsRequestSchema, () => {
  got.roots++;
  return { roots: [{ uri: "file:///srv/tempool", name: "root of the test" }] };
});
let logged;
const log = new Promise((resolve) => { logged = resolve; });
client.setNotificationHandler(LoggingMessageNotificationSchema, () => { got.logs++; logged(); });

const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
got.server = client.getServerVersion().name;
got.session = Boolean(transport.sessionId);
got.capabilities = client.getServerCapabilities();
got.tools = (await client.listTools()).tools.map((tool) => tool.name);
const text = async (name, args, options) =>
  (await client.callTool({ name, arguments: args }, undefined, options)).content.map((c) => c.text).join("\n");
got.echo = await text("echo", { message: "line\nünïcödé 語" });
got.long = await text("trigger-long-running-operation", { duration: 1, steps: 4 },
  { onprogress: (p) => got.progress.push(p.progress) });
try {
  await client.callTool({ name: "no-such-tool", arguments: {} });
} catch (e) {
  got.unknown = e.code;
}
if (mode === "session") {
  got.sample = await text("trigger-sampling-request", { prompt: "hello", maxTokens: 10 });
  got.rootList = await text("get-roots-list", {});
  await client.setLoggingLevel("debug");
  await text("toggle-simulated-logging", {});
  await log;
}
await transport.terminateSession();
await client.close();
console.log(JSON.stringify(got));
