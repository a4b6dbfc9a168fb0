// Every change goes this way: it is shown before it is done (what, how many, where, who sees it), it is given its reason, and
// what can be taken back leaves a line to do so.

import { UNDOS_MAX, undoing } from './console-model.js';
import { h } from './words.js';

/** The reason given last, offered for the next: a moderator does the same thing for the same reason again and again. */
let lastReason = '';

export class Acts {
  /** `said`: the element that holds what was done and its undo lines. */
  constructor(said) {
    this.said = said;
    this.undos = [];
    this.busy = false;
  }

  /**
   * Asks, does, tells. Gives whether it was done.
   *
   * `act`: {title, effects[], danger?, warning?, fresh?, check?(values) -> what is wrong or null, fields[{name, label, value?, type?, options?, required?, min?, max?, maxlength?, checked?}],
   * confirm, steps(values) -> [{what, told?(answer) -> text, run() -> promise, undo? {what, run(justification)}}], after?()}. `values.justification` is always there.
   * `fresh`: the reason given last is not offered, and this one is not offered for the next.
   * `effects` and `warning` may be functions of the values: then they are told anew as those change.
   * `after()` follows when it was done, and when it or a part of it was taken back.
   */
  async perform(act) {
    if (this.busy) return false;
    this.busy = true;
    try {
      const values = await this.ask(act);
      if (!values) return false;
      if (!act.fresh) lastReason = values.justification;
      await this.run(act.steps(values), values.justification, act.after);
    } finally {
      this.busy = false;
    }
    act.after?.();
    return true;
  }

  ask(act) {
    return new Promise((resolve) => {
      let answer = null;
      const inputs = new Map();
      const field = (f) => {
        const id = `ask-${f.name}`;
        const common = { id, name: f.name, required: f.required, min: f.min, max: f.max, maxlength: f.maxlength, placeholder: f.placeholder };
        let input;
        if (f.type === 'select') {
          input = h('select', common, f.options.map(([value, text]) => h('option', { value }, text)));
          if (f.value !== undefined) input.value = String(f.value);
        } else {
          input = h('input', { ...common, type: f.type ?? 'text', value: f.value, autocomplete: 'off' });
          if (f.type === 'checkbox') input.checked = f.checked === true;
        }
        inputs.set(f.name, input);
        return f.type === 'checkbox'
          ? h('label', { class: 'check', for: id }, input, ` ${f.label}`)
          : h('div', { class: 'field' }, h('label', { for: id }, f.label), input, f.hint ? h('p', { class: 'note' }, f.hint) : null);
      };
      const given = () => Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === 'checkbox' ? input.checked : input.value.trim()]));
      const effects = h('ul', { class: 'effects' });
      const warning = h('p', { class: 'warning' });
      const wrong = h('p', { class: 'warning', role: 'alert', hidden: true });
      const paint = () => {
        const of = (told) => (typeof told === 'function' ? told(given()) : told);
        effects.replaceChildren(...of(act.effects).map((text) => h('li', {}, text)));
        warning.textContent = of(act.warning) ?? '';
        warning.hidden = warning.textContent === '';
        wrong.hidden = true;
      };
      const why = { name: 'justification', label: 'Why (kept in the audit)', required: true, maxlength: 200, value: act.fresh ? '' : lastReason };
      const form = h('form', { method: 'dialog', class: 'ask' },
        h('h2', { id: 'ask-title' }, act.title),
        effects, warning, (act.fields ?? []).map(field), field(why), wrong,
        h('div', { class: 'row ends' },
          h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'),
          h('button', { type: 'submit', class: act.danger ? 'danger' : 'primary', id: 'ask-do' }, act.confirm)));
      const dialog = h('dialog', { 'aria-labelledby': 'ask-title' }, form);
      paint();
      form.addEventListener('input', paint);
      form.addEventListener('submit', (event) => {
        const values = given();
        const fault = act.check?.(values) ?? null;
        if (fault === null) { answer = values; return; }
        event.preventDefault();
        wrong.textContent = fault;
        wrong.hidden = false;
      });
      const back = document.activeElement;
      dialog.addEventListener('close', () => {
        dialog.remove();
        back?.focus?.();
        resolve(answer);
      });
      document.body.append(dialog);
      dialog.showModal();
      const first = inputs.get(act.fields?.find((f) => f.required && !f.value)?.name) ?? inputs.get('justification');
      first.focus();
      first.select?.();
    });
  }

  /** One step after the other; what failed does not keep the rest back, and is told. */
  async run(steps, justification, after) {
    const done = [];
    const failed = [];
    for (const [i, step] of steps.entries()) {
      if (steps.length > 1) this.tell(`${i + 1} of ${steps.length}: ${step.what}…`);
      try {
        const answer = await step.run(justification);
        done.push({ ...step, what: step.told?.(answer) ?? step.what, answer });
      } catch (fault) {
        failed.push(`${step.what}: ${fault.message}`);
      }
    }
    const undos = done.filter((step) => step.undo).map((step) => ({ ...(typeof step.undo === 'function' ? step.undo(step.answer) : step.undo), of: step.what })).filter((undo) => undo.run);
    const what = done.length === 1 ? done[0].what : done.length === 0 ? '' : `${done[0].what} and ${done.length - 1} more`;
    if (done.length > 0) this.keep({ what, undos, justification, after });
    else this.paint();
    if (failed.length > 0) this.tell(`${failed.length === 1 ? 'Not done' : `${failed.length} not done`}. ${failed[0]}`, 'bad');
  }

  keep(entry) {
    this.undos.push(entry);
    this.undos = this.undos.slice(-UNDOS_MAX);
    this.paint();
  }

  /** Takes the newest back that can be. */
  async undo(entry = this.undos.findLast((u) => u.undos.length > 0)) {
    if (!entry) return;
    if (this.busy) {
      // What is being done may itself be what they mean: nothing is guessed.
      this.tell('Nothing was undone: what you asked for last is still being done.', 'bad');
      return;
    }
    this.busy = true;
    try {
      const left = [];
      const undone = [];
      let fault;
      for (const undo of entry.undos) {
        try {
          await undo.run(undoing(entry.justification));
          undone.push(undo.of);
        } catch (refused) {
          left.push(undo);
          fault = refused;
        }
      }
      entry.undos = left;
      if (left.length === 0) this.undos = this.undos.filter((u) => u !== entry);
      // Of what was done together, only some can be taken back: those are named.
      if (undone.length > 0) this.undos.push({ what: `Undone: ${undone[0]}${undone.length > 1 ? ` and ${undone.length - 1} more` : ''}`, undos: [], justification: '' });
      this.paint();
      if (fault) this.tell(`Not undone: ${fault.message}`, 'bad');
      if (undone.length > 0) entry.after?.();
    } finally {
      this.busy = false;
    }
  }

  /** A word without an undo: progress, or a fault. */
  tell(text, kind) {
    this.paint();
    this.said.append(h('p', { class: 'word', 'data-kind': kind }, text, h('button', { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', onclick: (e) => e.target.closest('p').remove() }, '×')));
  }

  paint() {
    const newest = this.undos.slice(-3).reverse();
    this.said.replaceChildren(...newest.map((entry, i) => h('p', { class: i === 0 ? 'done' : 'done older' }, h('span', { class: 'what' }, entry.what),
      entry.undos.length > 0
        ? h('button', { type: 'button', class: 'undo', onclick: () => this.undo(entry) }, entry.undos[0].what, i === 0 ? h('kbd', {}, 'z') : null)
        : null,
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', onclick: () => { this.undos = this.undos.filter((u) => u !== entry); this.paint(); } }, '×'))));
  }
}
