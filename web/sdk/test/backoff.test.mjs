import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WAIT_MS_MAX, WAIT_MS_MIN, backoff, told } from './built.mjs';

test('a wait lies between the least and three times the last one, and below the most', () => {
  assert.equal(backoff(0, 0), WAIT_MS_MIN);
  assert.equal(backoff(0, 0.5), 1000);
  assert.equal(backoff(1000, 1), 3000);
  let wait = 0;
  for (let n = 0; n < 20; n += 1) wait = backoff(wait, 0.999);
  assert.equal(wait, WAIT_MS_MAX);
});

test('what a server asks for is its wait and a draw of its spread', () => {
  assert.equal(told({}, 0.5), null);
  assert.equal(told({ retry_after_ms: 500 }, 0.9), 500);
  assert.equal(told({ retry_after_ms: 500, spread_ms: 1000 }, 0.5), 1000);
  assert.equal(told({ spread_ms: 1000 }, 0.25), 250);
});
