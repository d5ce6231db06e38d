// Signs people in at a real provider, in a real browser. Arguments: JSON with the server's address, the directory for
// screenshots, the browser's program, and the directory of the npm packages.
import { createRequire } from 'node:module';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { launch } from './browser.mjs';

const { address, screenshots, program, modules } = JSON.parse(process.argv[2]);
const require = createRequire(join(modules, 'package.json'));
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');

const base = `http://${address}`;
const app = '/apps/shop-test/api';
const fail = (what) => { throw new Error(what); };
const check = (is, what) => { if (!is) fail(what); };
const step = (name) => console.log(`step: ${name}`);

mkdirSync(screenshots, { recursive: true });
const browser = await launch(program, modules);

/** A browser of its own: of another person, without anybody's cookies. */
const person = async () => {
  const context = await browser.newContext({ baseURL: base, viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(20_000);
  // The provider's own pages ask for a font from elsewhere.
  await context.route((url) => url.protocol !== 'data:' && url.hostname !== '127.0.0.1', (route) => route.abort());
  const page = await context.newPage();
  const callbacks = [];
  page.on('request', (request) => {
    if (request.url().startsWith(`${base}/sign-in/callback`)) callbacks.push(request.url());
  });
  return { context, page, callbacks };
};

/** Signs in at the provider, from the sign-in page. */
const signIn = async (page, name) => {
  await page.click('#provider');
  await page.fill('input[name=login]', name);
  await page.fill('input[name=password]', 'any');
  await page.click('button[type=submit]');
  // The provider asks once whether this client may know the person.
  await page.waitForSelector('button:has-text("Continue")');
  await Promise.all([
    page.waitForURL((url) => url.host === address),
    page.click('button[type=submit]'),
  ]);
};

const accessible = async (page, name) => {
  await page.screenshot({ path: join(screenshots, `${name}.png`), fullPage: true });
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run());
  check(violations.length === 0, `${name}: ${JSON.stringify(violations.map(({ id, nodes }) => [id, nodes[0].html]))}`);
};

const session = async (context) => (await context.cookies(base)).find(({ name }) => name === '__Host-rollhook');
const pending = async (context) => (await context.cookies(base)).find(({ name }) => name === '__Host-rollhook-sign-in');

step('a developer signs in, and returns to the page that was asked for');
const ada = await person();
await ada.page.goto(app);
check(new URL(ada.page.url()).pathname === '/sign-in', ada.page.url());
await accessible(ada.page, 'sign-in-with-a-provider');
await signIn(ada.page, 'ada');
check(new URL(ada.page.url()).pathname === app, ada.page.url());
const shown = 'ada@example.com via 127.0.0.1';
check((await ada.page.textContent('body')).includes(shown), 'the page names the person');
const cookie = await session(ada.context);
check(cookie?.httpOnly && cookie.secure && cookie.sameSite === 'Lax', JSON.stringify(cookie));
check(!await pending(ada.context), 'the cookie of the request is gone');

step('what she deploys is hers in the history');
await ada.page.goto(`${app}/deploy`);
await ada.page.fill('input[name=image]', 'r.example.com/api:v2');
await ada.page.click('main button[type=submit], main form button');
await ada.page.goto(`${app}/deploys/2`);
check((await ada.page.textContent('main')).includes(shown), 'the entry names the person');

step('an answer of the provider counts once, and in the browser that asked');
const replayed = await ada.page.goto(ada.callbacks[0]);
check(replayed.status() === 400, `${replayed.status()}`);
const thief = await person();
const stolen = await thief.page.goto(ada.callbacks[0]);
check(stolen.status() === 400 && !await session(thief.context), 'another browser gets no session');
await thief.page.goto('/sign-in/start?next=%2F');
const forged = await thief.page.goto('/sign-in/callback?code=x&state=y');
check(forged.status() === 400 && !await session(thief.context), 'a made-up state gets no session');

step('a viewer sees the app, and may change nothing');
const vera = await person();
await vera.page.goto('/sign-in?next=https://evil.example/');
await signIn(vera.page, 'vera');
check(vera.page.url() === `${base}/`, `led to ${vera.page.url()}`);
check((await vera.page.textContent('body')).includes('vera (unverified) via 127.0.0.1'), 'an unverified address is no name');
await vera.page.goto(app);
check(await vera.page.locator(`a[href="${app}/deploy"]`).count() === 0, 'no deploy is offered');
const form = { image: 'r.example.com/api:v3' };
const headers = { origin: base, 'sec-fetch-site': 'same-origin' };
const refused = await vera.context.request.post(`${app}/deploy`, { form, headers });
check(refused.status() === 403, `${refused.status()}`);

step('a person without a role is told so, and gets no session');
const nora = await person();
await nora.page.goto('/sign-in');
await signIn(nora.page, 'nora');
const text = await nora.page.textContent('main');
check(text.includes('You have no role here') && text.includes('nora@example.com'), text);
await accessible(nora.page, 'no-role');
check(!await session(nora.context), 'no session');
await nora.page.goto('/');
check(new URL(nora.page.url()).pathname === '/sign-in', nora.page.url());

step('a person who goes back at the provider is told so');
const other = await person();
await other.page.goto('/sign-in');
await other.page.click('#provider');
await other.page.waitForSelector('input[name=login]');
await Promise.all([other.page.waitForURL((url) => url.host === address), other.page.click('a:has-text("Cancel")')]);
check((await other.page.textContent('#error')).includes('access_denied'), 'the reason is shown');

step('sign out everywhere ends all sessions of the person, and of nobody else');
const again = await person();
await again.page.goto('/sign-in');
await signIn(again.page, 'ada');
await again.context.request.post('/sign-out-everywhere', { headers });
await ada.page.goto('/');
check(new URL(ada.page.url()).pathname === '/sign-in', 'her other session has ended');
await vera.page.goto('/');
check(vera.page.url() === `${base}/`, 'another person is still signed in');

await browser.close();
console.log('done');
