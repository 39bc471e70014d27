// The form that sends messages: text, files, answers. It posts to the agent's own HTTP+JSON binding.

import { clean, element } from "./tree.js";

const MOST_BYTES = 32 * 1024 * 1024;

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Error(`${file.name} cannot be read`));
    reader.readAsDataURL(file);
  });
}

async function parts(text, files) {
  const made = text.trim() ? [{ text }] : [];
  for (const file of files) {
    made.push({ raw: await base64(file), filename: file.name, mediaType: file.type || "application/octet-stream" });
  }
  return made;
}

const DRAFT = `draft of ${location.pathname}`;

// The login has ended. Its form leads back to this page, which then has what was typed and every entry since.
export function logIn() {
  const draft = document.getElementById("text")?.value;
  if (draft) sessionStorage.setItem(DRAFT, draft);
  const back = encodeURIComponent(location.pathname + location.search);
  location.replace(`${document.querySelector(".brand").pathname}login#back=${back}`);
}

export async function call(url, body) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  });
  if (response.status === 401) logIn();
  const answer = await response.json().catch(() => null);
  if (!response.ok) throw new Error(answer?.error?.message ?? `The agent answered with status ${response.status}`);
  return answer;
}

export class Composer {
  constructor(form, onTask) {
    this.form = form;
    this.onTask = onTask;
    this.files = [];
    this.text = form.elements.text;
    this.problem = form.querySelector("#problem");
    this.text.value ||= sessionStorage.getItem(DRAFT) ?? "";
    sessionStorage.removeItem(DRAFT);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send(this.text.value);
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    const picker = form.querySelector("#files");
    picker.addEventListener("change", () => {
      this.attach(picker.files);
      picker.value = "";
    });
    form.addEventListener("dragover", (event) => {
      event.preventDefault();
      form.classList.add("dropping");
    });
    form.addEventListener("dragleave", () => form.classList.remove("dropping"));
    form.addEventListener("drop", (event) => {
      event.preventDefault();
      form.classList.remove("dropping");
      this.attach(event.dataTransfer.files);
    });
  }

  attach(files) {
    this.files.push(...files);
    this.show();
  }

  show() {
    const list = this.form.querySelector("#attached");
    list.replaceChildren(
      ...this.files.map((file, place) => {
        const item = element("li", "chip", `${file.name} `);
        const remove = element("button", "quiet", "Remove");
        remove.type = "button";
        remove.setAttribute("aria-label", `Remove ${file.name}`);
        remove.addEventListener("click", () => {
          this.files.splice(place, 1);
          this.show();
        });
        item.append(remove);
        return item;
      }),
    );
  }

  fill(text) {
    this.text.value = text;
    this.text.focus();
  }

  async send(text) {
    this.problem.hidden = true;
    const button = this.form.querySelector("#send");
    button.disabled = true;
    try {
      if (this.files.reduce((sum, file) => sum + file.size, 0) > MOST_BYTES) throw new Error("The files are too large");
      const made = await parts(text, this.files);
      if (!made.length) return;
      const { api, task, context } = this.form.dataset;
      const message = { messageId: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`, role: "ROLE_USER", parts: made };
      if (task) message.taskId = task;
      if (context) message.contextId = context;
      const answer = await call(`${api}message:send`, { message, configuration: { returnImmediately: true } });
      this.text.value = "";
      this.files = [];
      this.show();
      if (answer.task) this.onTask(answer.task);
      else reply(text, answer.message);
    } catch (error) {
      this.problem.textContent = clean(error.message);
      this.problem.hidden = false;
    } finally {
      button.disabled = false;
      this.text.focus();
    }
  }
}

// A reply without a task is kept nowhere but on this page.
function reply(text, message) {
  const shown = document.getElementById("replies");
  const turns = [["mine", "You", text]];
  for (const part of message?.parts ?? []) turns.push(["theirs", "Reply", part.text ?? JSON.stringify(part.data ?? part.url ?? part.filename ?? "")]);
  for (const [side, from, body] of turns) {
    const turn = element("section", `turn ${side}`);
    const inner = element("div", "body");
    inner.append(element("div", "plain", clean(body)));
    turn.append(element("h2", "from", from), inner);
    shown.append(turn);
  }
}
