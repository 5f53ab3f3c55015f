// A plugin for OpenCode, written by fairlead's sandbox-agent, which also removes it.
// It tells when a turn begins and ends; nothing of OpenCode waits for it.
import { spawn } from "node:child_process"

const report = (event, session, message) => {
  try {
    const child = spawn("COMMAND", ["hook", "opencode", event], {
      detached: true,
      stdio: "ignore",
      env: { ...process.env, FAIRLEAD_HOOK_INPUT: JSON.stringify({ session_id: session, last_assistant_message: (message ?? "").slice(-8192) }) },
    })
    child.on("error", () => {})
    child.unref()
  } catch {}
}

export const Fairlead = async () => {
  const children = new Set() // sessions of subagents, whose turns are part of another
  const texts = new Map() // the last text of each session
  const prompts = new Set() // ids of people's messages
  let busy = ""
  report("ready")
  return {
    event: async ({ event }) => {
      const p = event.properties ?? {}
      const session = p.sessionID ?? p.info?.sessionID ?? p.part?.sessionID
      switch (event.type) {
        case "session.created":
          if (p.info?.parentID) children.add(p.info.id)
          return
        case "message.updated":
          if (p.info?.role === "user") prompts.add(p.info.id)
          return
        case "message.part.updated":
          if (p.part?.type === "text" && !prompts.has(p.part.messageID)) texts.set(session, p.part.text)
          return
      }
      if (children.has(session)) return
      if (event.type === "session.status" && p.status?.type === "busy" && busy !== session) {
        busy = session
        report("start", session)
      } else if (event.type === "session.idle") {
        busy = ""
        prompts.clear()
        report("stop", session, texts.get(session))
        texts.delete(session)
      } else if (event.type === "session.error" && busy === session) {
        busy = ""
        report(p.error?.name === "MessageAbortedError" ? "interrupt" : "fail", session, texts.get(session))
      } else if (event.type === "permission.asked") {
        report("ask", session, `Permission: ${p.permission ?? ""} ${(p.patterns ?? []).join(" ")}`)
      } else if (event.type === "permission.replied") {
        report("start", session)
      }
    },
  }
}
