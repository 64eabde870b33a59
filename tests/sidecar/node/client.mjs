// The official Node client against the sidecar: prints one JSON object.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.TIER_ROUTER_URL + "/v1", apiKey: "none", maxRetries: 0 });
const ask = (text, more = {}) =>
  client.chat.completions.create({ model: "auto", messages: [{ role: "user", content: text }], ...more });

const { data, response } = await ask("hello").withResponse();
const stream = await ask("prove it", { stream: true, stream_options: { include_usage: true } });
let text = "", chunks = 0, usage = null;
for await (const chunk of stream) {
  chunks += 1;
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
const models = [];
for await (const model of client.models.list()) models.push(model.id);
let error = null;
try {
  await ask("hello", { model: "nope" });
} catch (caught) {
  error = { status: caught.status, code: caught.code, name: caught.constructor.name };
}
console.log(JSON.stringify({
  tier: response.headers.get("x-tier-router-tier"),
  content: data.choices[0].message.content,
  streamed: text, chunks, usage, models, error,
}));
