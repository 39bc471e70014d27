// Commands that repeat a request: with curl, and in Python. They never contain a credential.

const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
const AUTH = "A2A_SYNC_AUTH";

export function asCurl({ method, url, headers, body }, secured) {
  const lines = [`curl -sS -X ${method} ${quote(url)}`];
  for (const [name, value] of Object.entries(headers)) {
    if (value !== "***") lines.push(`  -H ${quote(`${name}: ${value}`)}`);
  }
  if (secured) lines.push(`  -H "Authorization: $${AUTH}"`);
  if (body) lines.push(`  -d ${quote(JSON.stringify(body))}`);
  return lines.join(" \\\n");
}

export function asPython({ method, url, headers, body }, secured) {
  const shown = Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== "***"));
  const lines = ["import json", ...(secured ? ["import os"] : []), "", "import requests", ""];
  lines.push(`headers = json.loads(${JSON.stringify(JSON.stringify(shown))})`);
  if (secured) lines.push(`headers["Authorization"] = os.environ["${AUTH}"]`);
  const json = body ? `, json=json.loads(${JSON.stringify(JSON.stringify(body))})` : "";
  lines.push(`answer = requests.request("${method}", ${JSON.stringify(url)}, headers=headers${json})`, "print(answer.text)");
  return lines.join("\n");
}

// The request that made an entry of a log, or that reads it: a message of a user is sent again, for all others the task is read.
export function requestOf(entry, read) {
  if (entry?.message?.role !== "ROLE_USER" || read.body.method !== "GetTask") return read;
  const { taskId, contextId, ...message } = entry.message;
  return { ...read, body: { ...read.body, method: "SendMessage", params: { message } } };
}

export function copyButtons(make, request, secured) {
  const row = make("p", "row");
  for (const [label, text] of [["Copy as curl", asCurl], ["Copy as Python", asPython]]) {
    const button = make("button", "quiet", label);
    button.type = "button";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text(request, secured));
      button.textContent = "Copied";
    });
    row.append(button);
  }
  return row;
}
