// Makes elements. What the service sends goes into text nodes and nowhere else: no string becomes markup here.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key === "role" || key.includes("-")) made.setAttribute(key, value);
    else made[key] = value;
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// A note beside something larger.
export function small(...children) {
  return element("span", { className: "small" }, ...children);
}

export function byId(id) {
  return document.getElementById(id);
}

// A share is shown by the style sheet. Set through the object model, which the content security policy allows.
export function setShare(node, share) {
  node.style.setProperty("--share", share.toFixed(4));
}

// For screen readers, in words, when something has ended that they could not see end.
export function announce(text) {
  byId("announcements").textContent = text;
}
