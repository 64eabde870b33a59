// Any OpenAI client works: point it at the sidecar, and leave the model to it.
//
//   npm install openai
//   sh run.sh node client.mjs                        simulated tiers, started for it
//   TIER_ROUTER_URL=http://... node client.mjs       yours
//
// What is my balance?
//   tier:   light
// Prove that the square root of 3 is irrational.
//   tier:   heavy

import OpenAI from "openai";

const client = new OpenAI({
  baseURL: (process.env.TIER_ROUTER_URL ?? "http://127.0.0.1:8080") + "/v1",
  apiKey: process.env.TIER_ROUTER_KEY ?? "none",
});

for (const question of ["What is my balance?", "Prove that the square root of 3 is irrational."]) {
  const { data, response } = await client.chat.completions
    .create({ model: "auto", messages: [{ role: "user", content: question }] })
    .withResponse();
  console.log(question);
  console.log("  tier:  ", response.headers.get("x-tier-router-tier"));
  console.log("  answer:", data.choices[0].message.content.slice(0, 60));
}
