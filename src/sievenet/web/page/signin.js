// Who we are, signing in and out.

import { ask, byId, me } from "./dom.js";

export class SignIn {
  /** `changed()` is called whenever we are somebody else. */
  constructor(changed) {
    this.changed = changed;
    this.dialog = byId("dialog");
    byId("sign").addEventListener("click", () => (me.role === null || !me.members ? this.open() : this.leave()));
    byId("sign-cancel").addEventListener("click", () => this.dialog.close());
    byId("sign-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.enter();
    });
  }

  async look() {
    Object.assign(me, await ask("/me"));
    const sign = byId("sign");
    sign.hidden = !me.members;
    sign.textContent = me.role === null ? "Sign in" : "Sign out";
    const role = me.role === null ? "not signed in" : me.members ? `${me.name} (${me.role})` : me.role === "operator" ? "operator: everybody on this machine" : me.role;
    byId("who").textContent = role;
    document.body.dataset.role = me.role ?? "";
    this.changed();
    if (me.role === null && me.members) this.open();
  }

  open() {
    byId("sign-error").textContent = "";
    if (!this.dialog.open) this.dialog.showModal();
  }

  async enter() {
    const token = byId("token");
    try {
      await ask("/sign-in", { method: "POST", body: JSON.stringify({ token: token.value }) });
      token.value = "";
      this.dialog.close();
      await this.look();
    } catch (error) {
      byId("sign-error").textContent = error.message;
      token.select();
    }
  }

  async leave() {
    await ask("/sign-out", { method: "POST" }).catch(() => {});
    Object.assign(me, { role: null, name: "", csrf: "" });
    await this.look();
  }
}
