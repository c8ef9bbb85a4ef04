// What a person can do about a task: decide, instruct, report, cancel. Each asks first, and returns whether it was done.

import { get, send } from "./api.js";
import { h } from "./dom.js";
import { age, when } from "./format.js";
import { ask, errorBox, field, notice } from "./notices.js";

/** Show the text of an approval, and decide it as `approved` or `rejected`. */
export async function decide(approvalId, decision) {
  let approval;
  try {
    approval = await get(`/v1/approvals/${encodeURIComponent(approvalId)}`);
  } catch (error) {
    await ask({ title: "The approval cannot be read", body: [errorBox(error)], confirm: "Close" });
    return false;
  }
  const rejects = decision === "rejected";
  const reason = h("textarea", { name: "reason", required: rejects, maxlength: "16000" });
  const done = await ask({
    title: `${rejects ? "Reject" : "Approve"}: ${approval.summary}`,
    body: [
      h("p", { class: "quiet" }, `${approval.category}, requested `, age(approval.requested_at), ", open until ", when(approval.expires_at)),
      h("pre", { tabindex: "0", "aria-label": "The text to decide on" }, approval.artifact),
      field(rejects ? "Reason" : "Reason (may be empty)", reason, "It is kept with the decision, and told to the agents."),
    ],
    confirm: rejects ? "Reject" : "Approve",
    danger: rejects,
    act: (values) =>
      send("POST", `/v1/approvals/${encodeURIComponent(approvalId)}`, {
        decision,
        artifact_sha256: approval.artifact_sha256,
        ...(values.reason.trim() ? { reason: values.reason.trim() } : {}),
      }),
  });
  if (done) notice(`${approval.summary}: ${decision}`, "good");
  return done !== null;
}

/** Give an instruction that overrides the developer. */
export async function override(task) {
  const done = await ask({
    title: `Override: ${task.title}`,
    body: [
      field("Instruction", h("textarea", { name: "instruction", required: true, maxlength: "16000" }), "What is to be done now."),
      field("Reason", h("textarea", { name: "reasoning", required: true, maxlength: "16000" }), "Why; it is kept with the attempt, and shown the next time."),
      field("Constraints", h("textarea", { name: "constraints" }), "One a line. They hold for all later proposals of this task."),
      h("p", null, h("label", null, h("input", { type: "checkbox", name: "confidence_override" }), " Go on although the confidence is low")),
    ],
    confirm: "Override",
    act: (values) =>
      act(task, "override", {
        instruction: values.instruction,
        reasoning: values.reasoning,
        constraints: values.constraints.split("\n").map((line) => line.trim()).filter(Boolean),
        confidence_override: values.confidence_override === "on",
      }),
  });
  return done !== null;
}

/** Report the outcome of an attempt. `outcome` is preselected. */
export async function reportOutcome(task, outcome = "succeeded") {
  const done = await ask({
    title: `Outcome: ${task.title}`,
    body: [
      field("Outcome", select("outcome", outcome, { succeeded: "It works again", failed: "It did not help", partial: "It helped in part" })),
      field("Fixed by", select("by", "proposal", { proposal: "the proposal", something_else: "something else, see the note", nothing: "nothing; it recovered by itself" }), "Counts for a success. Only what fixed it is learned."),
      field("Note", h("textarea", { name: "note", maxlength: "16000" }), "With “something else” the note is the lesson: write what fixed it."),
    ],
    confirm: "Report",
    act: (values) => act(task, "outcome", outcomeOf(task, values)),
  });
  return done !== null;
}

/** Answer “what did you change?” about a task that recovered without a known cause. */
export async function answerChange(task) {
  const note = h("textarea", { name: "note", maxlength: "16000" });
  const done = await ask({
    title: "What did you change?",
    body: [
      h("p", null, h("strong", null, task.title)),
      h("p", null, "It works again, and nobody has said why. The answer is learned, and proposed the next time."),
      field("What fixed it", note),
      h("p", null, h("label", null, h("input", { type: "checkbox", name: "nothing", onchange: (event) => (note.disabled = event.target.checked) }), " Nothing was changed; it recovered by itself")),
    ],
    confirm: "Answer",
    act: (values) => {
      if (values.nothing !== "on" && !values.note?.trim()) throw { title: "No answer", message: "Write what fixed it, or say that nothing was changed." };
      return act(task, "outcome", { outcome: "succeeded", ...(values.nothing === "on" ? { by: "nothing" } : { by: "something_else", note: values.note.trim() }) });
    },
  });
  return done !== null;
}

/** Show a draft of a postmortem or of a runbook section, as markdown to copy. */
export async function showDraft(task, form) {
  let draft;
  try {
    draft = await get(`/v1/tasks/${encodeURIComponent(task.task_id)}/draft`, { form });
  } catch (error) {
    await ask({ title: "The draft cannot be made", body: [errorBox(error)], confirm: "Close" });
    return;
  }
  const text = h("textarea", { readonly: true, rows: "20", spellcheck: "false" });
  text.value = draft.markdown;
  await ask({
    title: form === "runbook" ? "Draft of a runbook section" : "Draft of a postmortem",
    body: [
      field("Markdown", text, "Made by rules from the records: texts in blocks are quotes, and what no record holds is marked “Not recorded”. Complete it before others rely on it."),
      h("p", { class: "quiet" }, "As a file: ", h("code", null, `counterpoint lessons draft ${task.task_id} --${form} -o FILE --project ${task.project}`)),
    ],
    confirm: "Close",
  });
}

/** Cancel a task. */
export async function cancel(task) {
  const done = await ask({
    title: `Cancel: ${task.title}`,
    body: [field("Reason (may be empty)", h("textarea", { name: "reason", maxlength: "4000" }))],
    confirm: "Cancel the task",
    danger: true,
    act: (values) => act(task, "cancel", values.reason.trim() ? { reason: values.reason.trim() } : {}),
  });
  return done !== null;
}

function outcomeOf(task, { outcome, by, note }) {
  return {
    outcome,
    ...(task.attempt ? { attempt: task.attempt } : {}),
    ...(outcome === "succeeded" ? { by } : {}),
    ...(note.trim() ? { note: note.trim() } : {}),
  };
}

async function act(task, verb, body) {
  const receipt = await send("POST", `/v1/tasks/${encodeURIComponent(task.task_id)}/${verb}`, body);
  if (receipt.late) notice(`It came too late: the task is ${receipt.state}.`, "bad");
  else notice("Taken. The page shows the effect in a moment.", "good");
  return receipt;
}

function select(name, chosen, options) {
  return h("select", { name }, Object.entries(options).map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
}
