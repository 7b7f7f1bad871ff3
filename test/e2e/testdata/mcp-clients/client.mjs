// Reads a file by server-filesystem at a URL: node client.mjs URL FILE [PROXY], where PROXY is a program that connects
// stdio to the URL. Without one, the client tries revisions without sessions first. Prints the names of the tools and
// the file. Without FILE it calls a tool of the conformance suite's server.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [url, path, proxy] = process.argv.slice(2);
const client = new Client({ name: "test", version: "1" }, { versionNegotiation: { mode: proxy ? "legacy" : "auto" } });
const transport = proxy
  ? new StdioClientTransport({ command: process.execPath, args: [proxy, url], env: process.env, stderr: "inherit" })
  : new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const { tools } = await client.listTools();
const { content } = await client.callTool(path
  ? { name: "read_text_file", arguments: { path } } : { name: "test_simple_text", arguments: {} });
console.log(tools.map((tool) => tool.name).join(" "), content[0].text);
await transport.terminateSession?.();
await client.close();
