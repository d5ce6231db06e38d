// The browser of the other programs here: Chromium without a sandbox, which containers do not allow, and without calls of its
// own to anywhere.
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** Starts the browser. `modules`: the directory of the npm packages. */
export const launch = (program, modules) => {
  const { chromium } = createRequire(join(modules, 'package.json'))('playwright-core');
  return chromium.launch({
    executablePath: program,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync'],
  });
};
