// Where two texts part, word by word.

// The words of `text` as [word, whether `other` has it too, in the same order]; spaces stay with the word before.
export function compareWords(text, other) {
  const ours = words(text);
  const theirs = words(other).map(bare);
  const kept = inCommon(ours.map(bare), theirs);
  return ours.map((word, at) => [word, kept.has(at)]);
}

function words(text) {
  return text.match(/\S+\s*/gu) || [];
}

function bare(word) {
  return word.trim().toLowerCase();
}

// The places in `ours` of a longest common subsequence.
function inCommon(ours, theirs) {
  const longest = Array.from({ length: ours.length + 1 }, () => new Uint16Array(theirs.length + 1));
  for (let i = ours.length - 1; i >= 0; i -= 1) {
    for (let j = theirs.length - 1; j >= 0; j -= 1) {
      longest[i][j] = ours[i] === theirs[j]
        ? longest[i + 1][j + 1] + 1
        : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const kept = new Set();
  for (let i = 0, j = 0; i < ours.length && j < theirs.length;) {
    if (ours[i] === theirs[j]) {
      kept.add(i);
      i += 1;
      j += 1;
    } else if (longest[i + 1][j] >= longest[i][j + 1]) {
      i += 1;
    } else {
      j += 1;
    }
  }
  return kept;
}
