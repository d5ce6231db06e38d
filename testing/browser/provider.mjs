// A certified OpenID provider for tests: `oidc-provider` with its own pages. Arguments: JSON with its issuer, the
// client's redirect URL, and the directory of the npm packages. Whoever signs in with a name is that person.
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const { issuer, redirect, modules } = JSON.parse(process.argv[2]);
const require = createRequire(join(modules, 'package.json'));
const { default: Provider } = await import(pathToFileURL(require.resolve('oidc-provider')));

const people = {
  ada: { email: 'ada@example.com', email_verified: true, groups: ['everyone', 'shop-developers'] },
  vera: { email: 'vera@elsewhere.example', email_verified: false, groups: ['shop-viewers'] },
  nora: { email: 'nora@example.com', email_verified: true, groups: ['everyone'] },
};
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'rollhook', client_secret: 'the-secret-of-the-client', redirect_uris: [redirect],
    grant_types: ['authorization_code'], response_types: ['code'],
  }],
  pkce: { required: () => true },
  claims: { openid: ['sub'], profile: ['preferred_username'], email: ['email', 'email_verified'], groups: ['groups'] },
  scopes: ['openid', 'profile', 'email', 'groups'],
  cookies: { keys: ['of-a-test'] },
  findAccount: (_, id) => ({
    accountId: id,
    claims: async () => ({ sub: `id-of-${id}`, preferred_username: id, ...people[id] }),
  }),
});
provider.listen(new URL(issuer).port, '127.0.0.1', () => console.log('listening'));
// The test ends this process by closing its standard input.
process.stdin.resume();
process.stdin.on('end', () => process.exit(0));
