// The panel of versions: what is live, open and on disk; to swap, to open beside, to go back, and how that goes.

import { confirmed, forgetToken, heldToken } from "./admin.js";
import { call, Problem } from "./api.js";
import { announce, byId, element, small } from "./dom.js";
import { count, date, duration, megabytes } from "./format.js";

// The manifests, by version. One that cannot be read is null.
const manifests = new Map();
// when the swap began that was asked for here, and is to be told of when it ends
let expected = null;
// the last call that was refused at once
let refused = null;
// what the table shows
let drawn = "";

// Of every version on disk, each read once; those of versions that are gone are forgotten.
export async function readManifests(versions) {
  const missing = versions.filter((version) => !manifests.has(version));
  for (const version of manifests.keys()) if (!versions.includes(version)) manifests.delete(version);
  await Promise.all(missing.map(async (version) => {
    try {
      manifests.set(version, await call(`/index/${encodeURIComponent(version)}`));
    } catch (problem) {
      // one that could not be asked for is asked for again
      if (problem.code !== "unreachable") manifests.set(version, null);
    }
  }));
  return manifests;
}

export function drawVersions({ index, progress }, again) {
  drawTable(index, progress, again);
  drawProgress(progress, index);
  byId("rollback").disabled = progress.state === "running";
  byId("rollback").onclick = () => administer(ROLLBACK, null, again);
  byId("forget").hidden = heldToken() === null;
  byId("forget").onclick = () => {
    forgetToken();
    byId("forget").hidden = true;
    announce("The admin token is forgotten.");
  };
}

function drawTable(index, progress, again) {
  const busy = progress.state === "running";
  const rows = index.versions.map((version) =>
    [version, stateOf(index, version), manifests.get(version) ?? null, checkOf(index.last_check, version)]);
  // nothing is drawn anew that looks the same: a button that has the focus would lose it
  const now = JSON.stringify([busy, rows]);
  if (now === drawn) return;
  drawn = now;
  const focus = document.activeElement?.dataset?.key;
  byId("versions").tBodies[0].replaceChildren(...rows.map(([version, state, manifest, check]) => {
    const about = manifest ? `${count(manifest.n_passages)} passages, ${manifest.index_type}` : "";
    const actions = [state.live ? null : SWAP, state.open ? null : LOAD].filter(Boolean);
    return element("tr", { className: state.live ? "live" : "" },
      element("th", { scope: "row" }, version, small(about)),
      element("td", {}, date(state.date || manifest?.snapshot_date)),
      element("td", {}, state.text, small(state.note), small(check)),
      element("td", { className: "do" }, actions.map((action) => button(action, version, busy, again))));
  }));
  if (focus) (byKey(focus) || byId("index").querySelector("summary")).focus();
}

function byKey(key) {
  return document.querySelector(`[data-key="${CSS.escape(key)}"]`);
}

function stateOf(index, version) {
  const resident = index.resident.filter((one) => one.version === version);
  const shown = resident.find((one) => one.live) || resident.find((one) => !one.retiring) || resident[0];
  if (!shown) return { text: "on disk", note: "", live: false, open: false, date: null };
  const text = shown.live ? "live" : shown.retiring ? "closing" : "open";
  return { text, note: megabytes(shown.bytes), live: shown.live, open: !shown.retiring, date: shown.snapshot_date };
}

// What the last check of a guard said, where it was of this version.
function checkOf(check, version) {
  if (check?.version !== version) return "";
  const left = check.left ? `, ${check.left} not asked in time` : "";
  const found = check.broken || check.left ? `${check.broken} of ${check.questions} guarded answers break${left}`
    : `all ${check.questions} guarded answers hold`;
  return `${found} (${date(check.time.slice(0, 10))})`;
}

function button(action, version, busy, again) {
  const made = element("button", { type: "button", disabled: busy, "aria-label": action.label(version) }, action.short);
  made.dataset.key = `${action.path} ${version}`;
  made.addEventListener("click", () => administer(action, version, again));
  return made;
}

const SWAP = {
  path: "/index/swap", short: "Swap", flips: true,
  label: (version) => `Swap to ${version}`,
  text: "It is opened, checked and warmed first. No question fails, and no answer mixes two versions.",
};
const LOAD = {
  path: "/index/load", short: "Open", flips: false,
  label: (version) => `Open ${version} beside the live version`,
  text: "Questions may then name it, and a comparison can ask it. The live version stays live.",
};
const ROLLBACK = {
  path: "/index/rollback", short: "Roll back", flips: true,
  label: () => "Roll back",
  text: "A swap to the version that was live before this one.",
};

async function administer(action, version, again, trouble = "") {
  const { text, short, flips } = action;
  const choice = await confirmed({ title: action.label(version), text, button: short, flips, trouble });
  if (choice === null) return;
  const body = { wait: false, verify: choice.checksum ? "checksum" : "manifest" };
  if (version !== null) body.version = version;
  if (choice.policy) body.policy = choice.policy;
  try {
    expected = (await call(action.path, { body, token: heldToken() })).started_at;
    refused = null;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.code === "unauthorized") {
      forgetToken();
      await administer(action, version, again, problem.message);
      return;
    }
    refused = { title: `${action.label(version)}: refused`, problem };
    announce(`${refused.title}. ${problem.message}`);
  }
  again();
}

// The swap that runs, or how the last one ended.
function drawProgress(progress, index) {
  const parts = [];
  if (refused && progress.state !== "running") {
    parts.push(failure(refused.title, refused.problem.message, refused.problem.code));
  }
  if (progress.state === "running") {
    const bar = element("progress", { max: 1, "aria-label": "How much of this stage is done" });
    if (progress.fraction !== null) bar.value = progress.fraction;
    parts.push(element("p", {}, `${aim(progress)}: ${STAGES[progress.stage] || "beginning"} … `, bar));
  } else if (progress.state === "done" && !refused) {
    parts.push(element("p", {}, `${aim(progress)}: done in ${duration(progress.seconds.total ?? 0)}.`));
  } else if (progress.state === "failed" && !refused) {
    const serving = index.live ? ` ${index.live.version} goes on serving.` : " No index is live.";
    const during = STAGES[progress.stage] ? ` while ${STAGES[progress.stage]}` : "";
    parts.push(failure(`${aim(progress)} failed${during}`, progress.detail + serving, progress.code));
  }
  byId("swap-state").replaceChildren(...parts);
  if (expected !== null && progress.state !== "running" && progress.started_at === expected) {
    expected = null;
    announce(byId("swap-state").textContent);
  }
}

const STAGES = {
  pull: "bringing it here", verify: "verifying", open: "opening", drain: "waiting for questions to end",
  warm: "warming", guard: "asking what is guarded", flip: "flipping", current: "writing CURRENT",
};

function aim(progress) {
  return progress.policy === "load" ? `Opening ${progress.version} beside` : `Swap to ${progress.version}`;
}

function failure(title, detail, code) {
  return element("div", { className: "failure" }, element("p", {}, element("b", {}, `${title}.`), " ", detail),
    element("p", { className: "small" }, code));
}
