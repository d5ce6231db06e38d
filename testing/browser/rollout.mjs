// Watches rollouts on a real cluster in a real browser: two tabs of a deployer, and a viewer. Arguments: JSON with the
// server's address, the tokens, the app's namespace, the directory for screenshots, the browser's program, and the
// directory of the npm packages. The surrounding test opens the pods' gate when this program asks for it.
import { createInterface } from 'node:readline';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { launch } from './browser.mjs';

const { address, deployer, viewer, namespace, screenshots, program, modules } = JSON.parse(process.argv[2]);

const base = `http://${address}`;
const app = `/apps/${namespace}/api`;
const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const check = (is, what) => { if (!is) throw new Error(what); };
const step = (name) => console.log(`step: ${name}`);
const ask = async (what) => {
  console.log(`ask: ${what}`);
  check(!(await input.next()).done, `no answer to ${what}`);
};

mkdirSync(screenshots, { recursive: true });
const browser = await launch(program, modules);
const signedIn = async (token) => {
  const context = await browser.newContext({ baseURL: base, viewport: { width: 1440, height: 900 } });
  context.setDefaultTimeout(90_000);
  const page = await context.newPage();
  await page.goto(`/sign-in?next=${app}`);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.waitForURL(`${base}${app}`);
  await page.evaluate(() => { window.sameDocument = true; });
  return { context, page };
};
const says = (locator, text) => locator.filter({ hasText: text }).waitFor();
const isSameDocument = (page) => page.evaluate(() => window.sameDocument === true);

const { context, page } = await signedIn(deployer);
const other = await context.newPage();
await other.goto(app);
await other.evaluate(() => { window.sameDocument = true; });
const looker = (await signedIn(viewer)).page;
const everyone = [page, other, looker];
const deploy = (image) => page.request.post(`${app}/deploy`, { headers: { origin: base }, form: { image } });

step('a rollout goes live for all who look, pod by pod');
await deploy('r.example.com/api:gate-2');
for (const one of everyone) await says(one.locator('.running'), '0 of 4 new pods are ready');
await page.screenshot({ path: join(screenshots, 'rollout-on-a-cluster.png'), fullPage: true });
await ask('open the gate');
for (const one of everyone) await says(one.locator('#r2'), 'current');

step('a rollout fails, and its evidence is what the cluster has said');
// A restore would wait at the gate.
await deploy('r.example.com/api:v3');
await says(page.locator('#r3'), 'current');
await deploy('r.example.com/api:missing');
for (const one of everyone) await says(one.locator('#r4'), 'failed');
for (const one of everyone) await says(one.locator('#r4'), 'put right by #5');
for (const one of everyone) check(await isSameDocument(one), 'a page was loaded again');
await looker.goto(`${app}/deploys/4`);
await says(looker.locator('main'), 'r.example.com/api:missing');
await says(looker.locator('main'), 'ImagePullBackOff');
await says(looker.locator('main'), 'Back-off pulling image');
await looker.screenshot({ path: join(screenshots, 'evidence-on-a-cluster.png'), fullPage: true });

step('a viewer is offered nothing, and refused what it does not see');
await looker.goto(app);
check(await looker.locator(`a[href*="/rollback"], a[href="${app}/deploy"]`).count() === 0, 'a viewer is offered a change');
const refused = await looker.request.post(`${app}/deploy`, { headers: { origin: base }, form: { image: 'r.example.com/api:v4' } });
check(refused.status() === 403, `a viewer's deploy is ${refused.status()}`);

step('back to the first revision by one confirmed click');
await page.goto(app);
await page.locator('#r1').getByRole('link', { name: 'Roll back' }).click();
await page.getByRole('dialog').getByRole('button', { name: 'Roll back to revision 1' }).click();
await says(page.locator('#r6'), 'current');
await says(other.locator('#r6'), 'current');
await browser.close();
// The standard input, which is still open, would keep the process.
process.exit(0);
