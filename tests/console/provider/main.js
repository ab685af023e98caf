// An OpenID Connect provider on this machine, with one page on which any account signs in.
//
// Prints its issuer and public keys as JSON, then reads a line of JSON from standard input: the client's redirect URI and
// secret, the audience, and the roles of each account.

import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

const PAGE = (action) => `<!doctype html><html lang="en"><head><title>Provider</title><link rel="icon" href="data:,"></head>
<body><h1>Provider</h1><form method="post" action="${action}"><label>Account <input name="account"></label>
<button name="do" value="enter">Continue</button> <button name="do" value="cancel">Cancel</button></form></body></html>`;

const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const key = { ...privateKey.export({ format: "jwk" }), kid: "one", use: "sig", alg: "RS256" };
const { kty, n, e, kid, use, alg } = key;

const server = createServer((request, response) => serve(request, response));
let serve = (request, response) => response.writeHead(503).end();

server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  createInterface({ input: process.stdin }).once("line", (line) => {
    serve = served(issuer, JSON.parse(line));
    console.log("{}");
  });
  console.log(JSON.stringify({ issuer, jwks: { keys: [{ kty, n, e, kid, use, alg }] } }));
});

function served(issuer, { redirect_uri, secret, audience, roles }) {
  const provider = new Provider(issuer, {
    clients: [{ client_id: "console", client_secret: secret, redirect_uris: [redirect_uri] }],
    jwks: { keys: [key] },
    cookies: { keys: ["a key of the test"] },
    claims: { openid: ["sub", "preferred_username"] },
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: `${id}@contoso.example` }),
    }),
    extraTokenClaims: (_, token) => ({ roles: roles[token.accountId] ?? [] }),
    // Nobody is asked whether the console may know of the account.
    loadExistingGrant: async (context) => {
      const { client, session } = context.oidc;
      const grant = new context.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope("openid");
      grant.addResourceScope(audience, "console");
      await grant.save();
      return grant;
    },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    pkce: { required: () => true },
    features: {
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: "console", audience, accessTokenFormat: "jwt" }),
      },
    },
  });
  const rest = provider.callback();
  return async (request, response) => {
    if (!request.url.startsWith("/interaction/")) return rest(request, response);
    if (request.method === "GET") return response.writeHead(200, { "Content-Type": "text/html" }).end(PAGE(request.url));
    let body = "";
    for await (const chunk of request) body += chunk;
    const fields = new URLSearchParams(body);
    const result = fields.get("do") === "cancel"
      ? { error: "access_denied", error_description: "<b>The person</b> changed their mind" }
      : { login: { accountId: fields.get("account") } };
    return provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false });
  };
}
