// Drives the console in a real browser. Arguments: JSON with the server's address, the admin token, the directory for
// screenshots, the browser's program, and the directory of the npm packages.
//
// The surrounding test restarts the server when this program asks for it on standard output, and answers on standard input.
import { createRequire } from 'node:module';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { launch } from './browser.mjs';

const { address, token, screenshots, program, modules, git, commit } = JSON.parse(process.argv[2]);
const require = createRequire(join(modules, 'package.json'));
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const base = `http://${address}`;
const app = '/apps/shop-test/api';
const sizes = { 360: 780, 768: 1024, 1440: 900 };
const faults = [];
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const fail = (what) => { throw new Error(what); };
let current = 'starting';
const step = (name) => { current = name; console.log(`step: ${name}`); };
const ask = async (what) => {
  console.log(`ask: ${what}`);
  const { value, done } = await input.next();
  if (done) fail(`no answer to ${what}`);
  return value;
};

mkdirSync(screenshots, { recursive: true });
const browser = await launch(program, modules);
const context = await browser.newContext({ baseURL: base, viewport: { width: 1440, height: sizes[1440] } });
context.setDefaultTimeout(120_000);
const page = await context.newPage();

// Nothing may leave this machine, break the policy, or complain.
let restarting = false;
let expected = [];
context.on('request', (request) => {
  const url = new URL(request.url());
  if (url.protocol !== 'data:' && url.host !== address) faults.push(`a request leaves the server: ${url}`);
});
const watch = (page) => {
  page.on('console', (message) => {
    if (!['error', 'warning'].includes(message.type())) return;
    const text = `${message.text()} ${message.location().url}`;
    // The browser itself reports answers that are no success, and connections that a restart breaks.
    if (restarting && /Failed to load resource|net::ERR_|htmx:sse:error|htmx:error: Failed to fetch/.test(text)) return;
    if (expected.some((status) => text.includes(`status of ${status}`))) return;
    faults.push(`${current}: console: ${text}`);
  });
  page.on('pageerror', (error) => faults.push(`script: ${error.name} ${error.message} ${error.stack}`));
};
watch(page);
await context.addInitScript(() => {
  window.moved = 0;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.moved += entry.value;
  }).observe({ type: 'layout-shift', buffered: true });
  document.addEventListener('securitypolicyviolation', (event) => {
    console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`);
  });
});
const expecting = async (status, act) => {
  expected.push(status);
  // The browser's report comes on a way of its own, which is slow on a machine that has much to do.
  const reported = page.waitForEvent('console', (message) => message.text().includes(`status of ${status}`));
  await act();
  await reported;
  await page.evaluate(() => new Promise((done) => setTimeout(done, 100)));
  expected = expected.filter((known) => known !== status);
};

// The rules of WCAG 2.2 A and AA, and best practices, by axe-core.
const check = async (name) => {
  if (!await page.evaluate(() => typeof window.axe === 'object')) await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, {
    resultTypes: ['violations'],
    rules: { 'target-size': { enabled: true } },
  }));
  for (const { id, help, nodes } of violations) {
    faults.push(`${name}: ${id}: ${help}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join(' | ')}`);
  }
};

const themes = ['light', 'dark'];
// A picture at each size and in both themes, each checked by axe-core; nothing may be wider than the page.
const picture = async (name) => {
  for (const colorScheme of themes) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const [width, height] of Object.entries(sizes)) {
      await page.setViewportSize({ width: Number(width), height });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      if (over > 0) faults.push(`${name}: ${over} pixels too wide at ${width}`);
      await page.screenshot({ path: join(screenshots, `${name}-${width}-${colorScheme}.png`), fullPage: true });
      await check(`${name} at ${width}, ${colorScheme}`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'no-preference' });
  await page.setViewportSize({ width: 1440, height: sizes[1440] });
};

// Loads a page anew; nothing in it may move once it is shown, but by as little as a digit that a time has more beside it.
const steady = async (path) => {
  await page.goto(path);
  await page.waitForLoadState('networkidle');
  const moved = await page.evaluate(() => window.moved);
  if (moved > 0.0001) faults.push(`${path}: the layout shifts by ${moved}`);
};

const signIn = async () => {
  await page.goto('/');
  await page.waitForURL(/\/sign-in/);
  await page.getByLabel('Your name').fill('Ada');
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
};
const row = (revision) => page.locator(`#r${revision}`);
const says = async (locator, text) => {
  await locator.filter({ hasText: text }).waitFor();
};
// Acts, and waits for the page that follows, which may have the address of the one before.
const turning = async (act) => {
  await page.evaluate(() => { window.isOfBefore = true; });
  await act();
  await page.waitForFunction(() => !window.isOfBefore);
};
const eventually = async (what, is, act = () => {}) => {
  for (const until = Date.now() + 120_000; !await is(); await act()) {
    if (Date.now() > until) fail(what);
    await page.waitForTimeout(200);
  }
};
const api = async (method, path, data) => {
  const answer = await page.request.fetch(path, { method, headers: { authorization: `Bearer ${token}` }, data });
  if (!answer.ok()) fail(`${path}: ${await answer.text()}`);
  return answer.json();
};
const settle = (time) => api('PATCH', '/api/v1/apps/shop-test/api', { policy: { settle: time } });

try {
  step('signing in with a wrong token shows why');
  await page.goto('/');
  await picture('sign-in');
  await page.getByLabel('Token').fill('rh_wrong');
  await expecting(401, async () => {
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('alert').waitFor();
  });
  await picture('sign-in-refused');
  await signIn();
  await page.waitForURL(`${base}/`);

  step('from no apps to a deployed revision');
  await says(page.locator('main'), 'No apps yet');
  await picture('apps-empty');
  await page.getByRole('link', { name: 'Register an app' }).first().click();
  await page.getByLabel('Project').fill('shop');
  await page.getByLabel('Environment').fill('test');
  await page.getByLabel('Name', { exact: true }).fill('Api');
  await page.getByLabel('Image (if').fill('registry.example.com/shop/api:1.0.0');
  await expecting(422, async () => {
    await page.getByRole('button', { name: 'Register' }).click();
    await page.getByRole('alert').waitFor();
  });
  await picture('register-refused');
  await page.getByLabel('Name', { exact: true }).fill('api');
  await page.getByRole('button', { name: 'Register' }).click();
  await page.waitForURL(`${base}${app}`);
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.getByLabel('settle', { exact: true }).fill('0s');
  await page.getByRole('button', { name: 'Save the policy' }).click();
  await says(page.getByRole('status'), 'Saved.');
  await page.getByRole('link', { name: 'Deploys', exact: true }).click();
  await says(row(1), 'current');

  step('a deploy goes live without a reload');
  await page.evaluate(() => { window.sameDocument = true; });
  await page.keyboard.press('Tab');
  await page.getByRole('link', { name: 'Deploy…', exact: true }).focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Image').waitFor();
  await check('the deploy dialog');
  // The keyboard stays in the dialog, and leaves it by Escape to where it was.
  for (let press = 0; press < 12; press++) {
    await page.keyboard.press('Tab');
    const inside = await page.evaluate(() => document.activeElement === document.body || document.querySelector('#dialog').contains(document.activeElement));
    if (!inside) fail('the focus leaves the dialog');
  }
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  const back = await page.evaluate(() => document.activeElement.textContent);
  if (back !== 'Deploy…') fail(`the focus returns to "${back}"`);
  const other = await context.newPage();
  watch(other);
  await other.goto(app);
  await other.evaluate(() => { window.sameDocument = true; });
  // It settles until both have shown it.
  await settle('5m');
  await page.keyboard.press('Enter');
  await dialog.getByLabel('Image').fill('registry.example.com/shop/api:1.1.0');
  await dialog.getByLabel('Commit').fill('4f1a77b');
  await turning(() => dialog.getByRole('button', { name: 'Deploy' }).click());
  await page.evaluate(() => { window.sameDocument = true; });
  for (const tab of [page, other]) await says(tab.locator('.running'), 'Revision 2');
  await settle('0s');
  await says(row(2), 'current');
  await page.locator('.running').waitFor({ state: 'detached' });
  await says(other.locator('#r2'), 'current');
  for (const tab of [page, other]) {
    if (!await tab.evaluate(() => window.sameDocument === true)) fail('the page was loaded again');
  }
  await other.close();

  step('a deploy fails, and its evidence is readable');
  await page.request.post(`${app}/deploy`, {
    headers: { origin: base },
    form: { image: 'registry.example.com/shop/api:1.2.0-crash', commit: 'bad0bad' },
  });
  await says(row(3), 'failed');
  await says(row(4), 'current');
  await says(row(3), 'put right by #4');
  await picture('deploys');
  await row(3).getByRole('link', { name: 'Revision 3', exact: true }).click();
  await says(page.locator('main'), 'Put right by itself');
  await picture('entry-failed');

  step('back to an earlier revision by the dialog');
  await page.getByRole('link', { name: 'Deploys', exact: true }).click();
  await row(1).getByRole('link', { name: 'Roll back' }).click();
  await says(dialog, 'Roll back to revision 1?');
  await says(dialog, 'is held');
  for (const colorScheme of themes) {
    for (const width of [360, 1440]) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: sizes[width] });
      await page.screenshot({ path: join(screenshots, `dialog-${width}-${colorScheme}.png`) });
      await check(`the rollback dialog at ${width}, ${colorScheme}`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'no-preference' });
  await dialog.getByRole('button', { name: 'Roll back to revision 1' }).click();
  await says(row(5), 'current');
  await says(row(5), 'Ada');
  await says(page.locator('main'), 'Held after a rollback');
  await page.goto(`${app}/rollback?to=2`);
  await picture('rollback');

  step('a rollout that hangs is watched and cancelled');
  await page.request.post(`${app}/deploy`, { headers: { origin: base }, form: { image: 'registry.example.com/shop/api:1.3.0-hang' } });
  await page.goto(app);
  await says(page.locator('.running'), 'rolling out');
  await picture('deploys-running');
  await page.locator('.running').getByRole('link', { name: 'Cancel' }).click();
  await dialog.getByRole('button', { name: 'Cancel revision 6' }).click();
  await says(row(6), 'cancelled');
  await says(row(7), 'current');

  step('a build is watched, its log in colours');
  const site = '/apps/shop-test/site';
  await page.goto('/apps/new');
  await page.getByLabel('Project').fill('shop');
  await page.getByLabel('Environment').fill('test');
  await page.getByLabel('Name', { exact: true }).fill('site');
  if (await page.getByLabel('Branch', { exact: true }).isVisible()) fail('a source that was not chosen is shown');
  await page.getByLabel('Git').check();
  await page.getByLabel('URL').fill('no url');
  await expecting(422, async () => {
    await page.getByRole('button', { name: 'Register' }).click();
    await page.getByRole('alert').waitFor();
  });
  await picture('register-git');
  await page.getByLabel('URL').fill(git);
  await page.getByLabel('Image repository').fill('registry.example.com/shop/site');
  // The head is built at once unless a person does not want it.
  await page.getByLabel('Build the head').uncheck();
  await page.getByRole('button', { name: 'Register' }).click();
  await page.waitForURL(`${base}${site}`);
  await says(page.locator('main'), 'No deploys yet');
  await picture('deploys-empty');
  await page.goto(`${site}/settings`);
  await page.getByLabel('settle', { exact: true }).fill('0s');
  await page.getByRole('button', { name: 'Save the policy' }).click();
  await says(page.getByRole('status'), 'Saved.');
  await page.goto(`${site}/deploy`);
  await page.getByLabel('Commit').fill(commit);
  await page.getByRole('button', { name: 'Build and deploy' }).click();
  await says(page.locator('.running'), 'The image is being built.');
  await page.goto(`${site}/deploys/1`);
  await page.evaluate(() => { window.sameDocument = true; });
  await says(page.locator('.log .a-2'), 'fetching');
  await ask('build on');
  await says(page.locator('.log .a-1'), '<script>alert(1)</script>');
  await says(page.locator('#entry .pill'), 'current');
  await page.locator('.log .more').waitFor({ state: 'detached' });
  if (!await page.evaluate(() => window.sameDocument === true)) fail('the page was loaded again');
  if (await page.locator('.log a').count() > 0) fail('a build makes links');
  await picture('entry-built');

  step('the webhook');
  await page.goto(app);
  await page.getByRole('link', { name: 'Webhook' }).click();
  await picture('webhook-disabled');
  await page.getByRole('button', { name: 'Enable the webhook' }).click();
  const first = await page.locator('#token').textContent();
  if (!/^rh_\w{36}$/.test(first)) fail('no token is shown');
  await page.goto(`${app}/webhook`);
  if ((await page.content()).includes(first)) fail('the token is shown unasked');
  await picture('webhook');
  await turning(() => page.getByRole('button', { name: 'Reveal' }).click());
  if (await page.locator('#token').textContent() !== first) fail('another token is revealed');
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: base });
  // The button says so for two seconds.
  await page.locator('[data-copy="#token"]').evaluate((button) => {
    const note = () => { window.isCopied ||= button.textContent.includes('Copied'); };
    new MutationObserver(note).observe(button, { characterData: true, subtree: true });
  });
  await page.getByRole('button', { name: 'Copy the token' }).click();
  await page.waitForFunction(() => window.isCopied);
  if (await page.evaluate(() => navigator.clipboard.readText()) !== first) fail('another text is copied');
  await page.getByRole('link', { name: 'Make a new token…' }).click();
  await says(dialog, 'refused at once');
  await check('the dialog of a new token');
  await dialog.getByRole('button', { name: 'Make a new token' }).click();
  await page.getByText('This is the new token.').waitFor();
  if (await page.locator('#token').textContent() === first) fail('the token is the old one');
  const hook = await page.locator('#url').textContent();
  const post = (headers) => page.request.post(new URL(hook).pathname, { headers, data: { image: 'registry.example.com/shop/api:1.0.0' } });
  const unsigned = { 'x-hub-signature-256': `sha256=${'0'.repeat(64)}` };
  for (const headers of [{}, unsigned, unsigned, { 'x-service-token': 'rh_wrong' }]) {
    if ((await post(headers)).status() !== 401) fail('a wrong call is let in');
  }
  await page.goto(`${app}/webhook`);
  await says(page.locator('.call').first(), '401 wrong-token');
  await says(page.locator('.call', { hasText: 'wrong-signature' }), 'the secret at the sender');
  await picture('webhook-calls');
  await page.getByRole('link', { name: 'Trust a pipeline…' }).click();
  await page.getByLabel('Number of the repository').fill('shop/api');
  await expecting(422, async () => {
    await page.getByRole('button', { name: 'Trust it' }).click();
    await page.getByRole('alert').waitFor();
  });
  await picture('trust');
  await page.getByLabel('Number of the repository').fill('74');
  await page.getByRole('button', { name: 'Trust it' }).click();
  await says(page.locator('main'), 'repository_id = 74');
  await says(page.locator('main'), 'Too wide: every branch');
  await picture('webhook-trusts');
  for (const path of ['/', `${app}/deploys/3`, `${app}/webhook`, '/apps/new']) await steady(path);
  await steady(`${app}/settings`);
  await picture('settings');

  step('a variable waits for the next deploy, and is never shown again');
  await page.getByRole('link', { name: 'Config', exact: true }).click();
  await page.getByLabel('Name', { exact: true }).fill('DATABASE_URL');
  await page.getByLabel('Value', { exact: true }).fill('postgres://api:hunter2@db/api');
  await page.getByLabel('Wait for the next deploy').check();
  await page.getByRole('button', { name: 'Set', exact: true }).click();
  await page.getByText('The change waits for the next deploy.').waitFor();
  if ((await page.content()).includes('hunter2')) fail('a secret value is shown');
  await picture('configuration');
  await page.goto(`${app}/delete`);
  await picture('delete');

  step('deploys are locked, and unlocked');
  await page.goto(app);
  await page.getByRole('link', { name: 'Settings' }).click();
  await page.getByRole('link', { name: 'Lock deploys…' }).click();
  await dialog.getByLabel('Reason').fill('the fair is on');
  await check('the lock dialog');
  await dialog.getByRole('button', { name: 'Lock' }).click();
  await page.getByText('Deploys are locked').waitFor();
  await page.getByText('the fair is on').waitFor();
  await check('a locked app');
  await picture('locked');
  await page.getByRole('link', { name: 'End the lock…' }).click();
  await dialog.getByRole('button', { name: 'End the lock' }).click();
  await page.getByText('Deploys are locked').waitFor({ state: 'detached' });

  step('what lags behind is promoted, from a cell and as a whole');
  const images = { api: '1.0.0', web: '4.1.0', search: '1.9.3', worker: '2.0.0', 'a-service-with-a-long-name': '2026.11.22-rc.1' };
  for (const [name, tag] of Object.entries(images)) {
    for (const environment of name === 'worker' ? ['prod'] : ['prod', 'test']) {
      if (environment === 'test' && name === 'api') continue;
      const image = `registry.example.com/shop/${name}:${environment === 'test' ? `${tag}-next` : tag}`;
      await api('POST', '/api/v1/apps', { project: 'shop', environment, app: name, image, policy: { settle: '0s' } });
    }
  }
  await page.goto('/');
  const cell = (name, environment) => page.locator('tr', { has: page.locator(`th:text-is("${name}")`) }).locator(`[data-environment="${environment}"]`);
  for (const name of ['web', 'search', 'a-service-with-a-long-name']) {
    await api('GET', `/api/v1/apps/shop-test/${name}/deploys/1`);
    await eventually(`${name} is not behind`, () => cell(name, 'prod').getByText('behind test').isVisible(), () => page.goto('/'));
  }
  await picture('apps-matrix');
  await cell('web', 'prod').getByRole('link', { name: 'Promote' }).click();
  await says(dialog, 'Promote web to prod?');
  for (const colorScheme of themes) {
    for (const width of [360, 1440]) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: sizes[width] });
      await page.screenshot({ path: join(screenshots, `promote-dialog-${width}-${colorScheme}.png`) });
      await check(`the dialog of a promotion at ${width}, ${colorScheme}`);
    }
  }
  await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'no-preference' });
  await dialog.getByRole('button', { name: 'Promote to prod' }).click();
  await page.waitForURL(`${base}/apps/shop-prod/web`);
  await says(row(2), 'current');
  const variables = { FEATURE_SEARCH: { value: 'on', plain: true }, SEARCH_URL: 'https://search.example.com' };
  await api('PATCH', '/api/v1/apps/shop-test/search/config', { set: variables });
  await eventually('the variables are not there', async () => (await api('GET', '/api/v1/apps/shop-test/search')).current.revision >= 2);
  await page.goto('/');
  await page.getByRole('link', { name: 'Promote in shop' }).click();
  await says(page.locator('main'), 'What test runs, to prod');
  await says(page.locator('main'), 'lacks FEATURE_SEARCH and SEARCH_URL');
  await says(page.locator('main'), 'the same image runs already');
  await picture('promote');
  await steady('/projects/shop/promote');
  await expecting(409, () => page.getByRole('button', { name: 'Promote to prod' }).click());
  await says(page.getByRole('alert'), 'Nothing was promoted.');
  await page.getByLabel('They run without these variables').check();
  await page.getByRole('button', { name: 'Promote to prod' }).click();
  await says(page.locator('main'), 'Promoted from test to prod');
  await page.evaluate(() => { window.sameDocument = true; });
  await page.locator('.line .mark.good').nth(1).waitFor();
  if (!await page.evaluate(() => window.sameDocument === true)) fail('the page was loaded again');
  await picture('promoted');
  await expecting(422, () => page.goto('/projects/shop/promote?from=test&to=test'));
  await says(page.getByRole('alert'), 'not promoted to itself');
  await picture('promote-refused');

  step('commands by hand, with their logs');
  await page.goto('/apps/shop-prod/web/runs');
  await says(page.locator('main'), 'No command was run by hand yet.');
  for (const command of [['bin/rails', 'runner', 'script/fix_orders.rb'], ['bin/fail', '--with', "two words"]]) {
    const { number } = await api('POST', '/api/v1/apps/shop-prod/web/runs', { command });
    const status = async () => (await api('GET', `/api/v1/apps/shop-prod/web/runs/${number}`)).status;
    await eventually(`run ${number} does not end`, async () => ['succeeded', 'failed'].includes(await status()));
  }
  await page.goto('/apps/shop-prod/web');
  await page.getByRole('link', { name: 'Runs' }).click();
  await says(page.locator('main'), 'script/fix_orders.rb');
  await picture('runs');
  await page.getByRole('link', { name: 'Log of run 1' }).click();
  await says(page.locator('main'), 'exit code 0');
  await picture('run');

  step('a check is set, and tried out');
  await page.goto('/apps/shop-prod/web/settings');
  await page.getByRole('link', { name: 'Checks' }).click();
  await says(page.locator('main'), 'No checks yet.');
  await page.locator('#http-name').fill('front-page');
  await page.locator('#http-url').fill('https://shop.example.com/');
  await page.locator('#http-timeout').fill('1s');
  await page.locator('form', { has: page.locator('#http-name') }).getByRole('button', { name: 'Set the check' }).click();
  await says(page.locator('table'), 'front-page');
  await page.getByRole('button', { name: 'Test front-page' }).click();
  await says(page.getByRole('status'), 'of what runs');
  await picture('checks');
  await page.getByRole('link', { name: 'Remove front-page' }).click();
  await check('the dialog that removes a check');
  await dialog.getByRole('button', { name: 'Remove' }).click();
  await says(page.locator('main'), 'No checks yet.');

  step('the measurements of a deploy stand behind those of before it');
  const metrics = createServer((request, response) => {
    let body = '';
    request.on('data', (part) => { body += part; });
    request.on('end', () => {
      const start = Number(new URLSearchParams(body).get('start'));
      const values = [...Array(12).keys()].map((place) => [start + place * 15, String(0.1 + place / 50)]);
      const series = { resultType: 'matrix', result: [{ metric: {}, values }] };
      const data = request.url.endsWith('query_range') ? series : { resultType: 'scalar', result: [0, '0.2'] };
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify({ status: 'success', data }));
    });
  });
  await new Promise((listens) => { metrics.listen(0, '127.0.0.1', listens); });
  metrics.unref();
  const measured = '/api/v1/apps/shop-prod/web';
  const settings = { url: `http://127.0.0.1:${metrics.address().port}`, query: 'errors', condition: '< 0.5' };
  await api('PUT', `${measured}/checks/errors`, { kind: 'prometheus', settings });
  const { revision } = await api('POST', `${measured}/deploys`, { image: 'r.example.com/web:measured' });
  const entry = () => api('GET', `${measured}/deploys/${revision}`);
  await eventually('the deploy is not verified', async () => (await entry()).status === 'succeeded');
  await page.goto(`/apps/shop-prod/web/deploys/${revision}`);
  await says(page.locator('main'), 'The upright line is the deploy');
  await page.getByText('Measurements of errors').click();
  await says(page.locator('table.measurements'), 'before the deploy');
  await picture('measured');

  step('search as one types, and by the keyboard alone');
  await page.goto('/');
  await picture('apps');
  await page.getByRole('searchbox').focus();
  await page.keyboard.type('nothing like it');
  await says(page.locator('#apps'), 'Nothing found');
  await picture('apps-nothing-found');
  await page.goto('/');
  await page.keyboard.press('Tab');
  if (await page.evaluate(() => document.activeElement.textContent) !== 'Skip to content') fail('no skip link');
  await expecting(404, () => page.goto('/apps/shop-test/none'));
  await picture('not-found');

  step('a lost connection says so, and catches up');
  await page.goto(app);
  await says(row(7), 'current');
  restarting = true;
  await ask('stop');
  await page.locator('#offline').waitFor({ state: 'visible' });
  await picture('deploys-offline');
  await ask('start');
  // The session is in the store: the page goes on by itself.
  await page.locator('#offline').waitFor({ state: 'hidden' });
  await says(row(7), 'current');
  restarting = false;

  step('activity follows deploys, and is narrowed; the delivery measures have a chart and its table');
  await page.getByRole('link', { name: 'Activity' }).click();
  await says(page.locator('#activity'), 'api');
  await picture('activity');
  const further = await fetch(`${base}/api/v1/apps/shop-test/api/deploys`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ image: 'registry.example.com/shop/api:live' }),
  });
  if (further.status !== 202) fail(`the deploy is answered ${further.status}`);
  await says(page.locator('#activity tbody tr').first(), 'api:live');
  await says(page.locator('#activity tbody tr').first(), 'succeeded');
  await page.getByLabel('Status').selectOption('failed');
  await page.getByRole('button', { name: 'Show' }).click();
  await page.waitForURL(/status=failed/);
  await says(page.locator('#activity'), 'failed');
  if (await page.locator('#activity').getByText('current').count() > 0) fail('a filter is not heeded');
  await page.getByRole('link', { name: 'Delivery measures' }).click();
  await says(page.locator('.measures').first(), 'Change fail rate');
  await page.locator('.measures summary').first().click();
  await page.getByRole('columnheader', { name: 'Day (UTC)' }).first().waitFor();
  await picture('report');

  step('a token is made, shown once, and revoked, and the audit tells of it');
  await page.getByRole('link', { name: 'Access' }).click();
  await page.getByLabel('Name').fill('ci-shop');
  await page.getByLabel('Role').selectOption('deployer');
  await page.getByLabel('Project').fill('shop');
  await page.getByLabel('Valid for').fill('90d');
  await page.getByRole('button', { name: 'Make the token' }).click();
  await says(page.getByRole('status'), 'ci-shop');
  await page.locator('#token').filter({ hasText: /^rh_/ }).waitFor();
  await page.goto('/access');
  await picture('access');
  await page.getByRole('link', { name: 'Revoke ci-shop' }).click();
  await turning(() => page.getByRole('button', { name: 'Revoke the token' }).click());
  await says(page.locator('main'), 'API token ci-shop');
  if (await page.getByRole('link', { name: 'Revoke ci-shop' }).count() > 0) fail('the token is still listed');

  step('a receiver is added with the fields of its kind, its secret shown once, and removed');
  await page.getByRole('link', { name: 'Receivers' }).click();
  if (await page.getByLabel('Channel').isVisible()) fail('a URL has no channel');
  await page.getByRole('radio', { name: 'Slack' }).check();
  await page.getByLabel('Channel').fill('#deploys');
  await page.getByRole('radio', { name: 'URL' }).check();
  await page.getByRole('textbox', { name: 'Name' }).fill('ops');
  await page.getByRole('textbox', { name: 'URL' }).fill('https://hooks.example.com/rollhook');
  await page.getByRole('textbox', { name: 'Project (empty: everything)' }).fill('elsewhere');
  await page.getByRole('button', { name: 'Add the receiver' }).click();
  await page.locator('#secret-once').filter({ hasText: /^whsec_/ }).waitFor();
  await picture('receivers');
  await page.getByRole('link', { name: 'Remove ops' }).click();
  await page.getByRole('button', { name: 'Remove the receiver' }).click();
  await says(page.locator('main'), 'No receivers yet.');
  await page.goto(app);

  step('without a script');
  const plain = await browser.newContext({ javaScriptEnabled: false, baseURL: base });
  const page2 = await plain.newPage();
  await page2.goto(app);
  await page2.getByLabel('Token').fill(token);
  await page2.getByRole('button', { name: 'Sign in' }).click();
  await page2.waitForURL(`${base}${app}`);
  await page2.locator('#r2').getByRole('link', { name: 'Roll back' }).click();
  await page2.getByRole('button', { name: 'Roll back to revision 2' }).click();
  await page2.waitForURL(`${base}${app}`);
  await page2.locator('#r9').waitFor();
  await plain.close();
  await says(row(9), 'current');

  step('signing out');
  await page.locator('.menu summary').click();
  await picture('menu');
  await page.getByRole('button', { name: 'Sign out', exact: true }).click();
  await says(page.getByRole('status'), 'You are signed out.');
  await page.goto(app);
  await page.waitForURL(/\/sign-in\?next=/);
} catch (error) {
  await page.screenshot({ path: join(screenshots, 'failure.png'), fullPage: true }).catch(() => {});
  faults.push(`${error.stack}\nat ${page.url()}`);
}
await browser.close();
for (const fault of [...new Set(faults)]) console.log(`fault: ${fault}`);
console.log('done');
process.exit(faults.length === 0 ? 0 : 1);
