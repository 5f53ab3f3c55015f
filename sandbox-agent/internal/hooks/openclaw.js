// A hook for OpenClaw, written by fairlead's sandbox-agent, which also removes it.
import { spawn } from "node:child_process"

export default function handler(event) {
  const what = { "message:received": "start", "message:sent": "stop", "command:stop": "interrupt" }[`${event.type}:${event.action}`]
  if (!what) return
  try {
    const message = what === "stop" ? String(event.context?.content ?? "") : ""
    const child = spawn("COMMAND", ["hook", "openclaw", what], {
      detached: true,
      stdio: "ignore",
      env: { ...process.env, FAIRLEAD_HOOK_INPUT: JSON.stringify({ last_assistant_message: message.slice(-8192) }) },
    })
    child.on("error", () => {})
    child.unref()
  } catch {}
}
