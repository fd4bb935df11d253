/**
 * Every error in one table.
 *
 * A code says who can act: STATE_* the client starts again, INPUT_* the client answers better, REPLAY_* the author
 * fixes the tool, LIMIT_*, STORE_* and SERVER_* the operator, PEER_* the other side. `rpc` is the JSON-RPC code, `http` the
 * status at 2026-07-28, `sentence` the one thing a client may read. Details go into `message` (for the author and
 * the log) and never onto the wire, unless the row is marked `open`: its details describe the client's own request.
 * `rpc: 0` is an error that is never sent: our client throws it, or it is only logged.
 */

interface ErrorRow {
  readonly rpc: number
  readonly http: number
  readonly sentence: string
  readonly open?: true
}

export const ERRORS = {
  /**
   * This service did not seal the `requestState` for this caller and this request, or it has expired. All reasons
   * look alike from outside: changed bytes, a retired key, another principal, other arguments, another audience,
   * expiry. Only the log has the reason.
   *
   * Remedy: The client repeats the call without `requestState`. If this happens to honest clients, the operator
   * reads the reason in the log: `key` after a rotation that dropped a key too early, `expired` if people take
   * longer than the lifetime of a round, `principal` if the authenticator returns two subjects for one person,
   * `used` if a tool with [single use](docs/guide/14-tasks.md#single-use) gets another request with the same state.
   * [All reasons](docs/reference/log.md#state_refused-a-state-that-did-not-open-warn)
   */
  STATE_INVALID: { rpc: -32602, http: 200, sentence: 'Invalid or expired requestState' },

  /**
   * `inputResponses` is not an object that maps keys to result objects. It is an array, a number or `null`, or one
   * of its entries is not an object, or not a result of the kind that was requested.
   *
   * Remedy: The client sends `{ "<key>": <result object> }`, as the specification says.
   */
  INPUT_MALFORMED: {
    rpc: -32602,
    http: 200,
    sentence: 'inputResponses must be an object that maps each key to a result object',
    open: true,
  },
  /**
   * The same question was answered several times with content that does not match its schema, up to the limit on
   * asking again (`limits.maxReasks`). Or its form was accepted twice with nothing filled in; hosts that cannot
   * render a form do that. A tool call then ends with an `isError` result.
   *
   * Remedy: The client sends content that matches `requestedSchema`; the message of each repeated question says what
   * was wrong. The author makes the question easier to answer.
   */
  INPUT_REJECTED: { rpc: -32602, http: 200, sentence: 'The answers do not match the question', open: true },
  /**
   * A client of 2025-11-25 or older responded to a question with an error instead of a result: it does not know the
   * method after all, or it reports a refusal by its user as an error. A tool call gets an `isError` result instead.
   *
   * Remedy: The client responds with `decline` if the user says no. The message quotes the client's error.
   */
  INPUT_FAILED: {
    rpc: -32603,
    http: 200,
    sentence: 'The client responded to a question with an error',
    open: true,
  },
  /**
   * A client of 2025-11-25 or older did not answer a question within `limits.roundTtlMs`, or the flow reached
   * `limits.flowTtlMs`. The question was cancelled at the client. A tool call gets an `isError` result instead.
   *
   * Remedy: Call again and answer. If people need longer, the operator raises the limit; each waiting call holds a
   * connection.
   */
  INPUT_TIMEOUT: { rpc: -32603, http: 200, sentence: 'A question was not answered in time' },

  /**
   * The handler was about to run a new effect, but the journal holds one that this run has not reached. The program
   * is not the one that began the call: a deploy renamed or removed an effect, or a condition in the handler depends
   * on something that differs between rounds (the clock, a variable in memory, a fresh read of a database). The new
   * effect did not run.
   *
   * Remedy: Keep the names and the order of effects across a deploy, or let open calls end first. Use `ctx.now()`,
   * `ctx.random()` and `ctx.uuid()`, and put reads that the handler's control flow depends on into `ctx.step`.
   */
  REPLAY_DIVERGED: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool changed while the call was open. Start the call again',
  },
  /**
   * One run used the same name for two questions or steps. Recorded results are found by name, so the two could not
   * be told apart.
   *
   * Remedy: Give each its own name. In a loop, include the item: `` `ship-${order.id}` ``.
   */
  REPLAY_NAME_REUSED: { rpc: -32603, http: 200, sentence: 'This tool is faulty and cannot finish the call' },
  /**
   * The handler uses a name for one kind of operation (say, a question), and the journal has that name for another
   * kind (say, a step).
   *
   * Remedy: Use a new name for the new operation.
   */
  REPLAY_KIND_CHANGED: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool changed while the call was open. Start the call again',
  },
  /**
   * A question had different words or a different schema in every round, so no answer ever belonged to the question
   * being asked.
   *
   * Remedy: Keep the time, rates, counters and random values out of the message, or read them in a `ctx.step` first,
   * which makes them the same in every round.
   */
  REPLAY_QUESTION_CHANGES: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool asks a different question on every round and cannot finish the call',
  },
  /**
   * An `await` is missing, and the message names the operation. Either the handler returned while a question, a step
   * or an effect was still open, or after one that nobody awaited had failed. Or an effect was about to begin, but
   * nothing had awaited a question (or the event of a hook) that the handler asked before it; the effect did not
   * run. Even an awaited question counts as unread while it is open and nothing awaits the effect. Or the handler
   * called an operation after it had returned: that is only logged, the result of the call stands, and the operation
   * does nothing.
   *
   * Remedy: Await every operation, and read the outcome of a question before the effect that depends on it: `if
   * (!(await ctx.confirm(…))) return`. To do several at once, use `Promise.all`.
   */
  REPLAY_NOT_AWAITED: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool is faulty and cannot finish the call',
  },
  /**
   * The handler asked, or began a step or an effect, inside a step, an effect or a function passed to `ctx.defer`.
   * The inner operation cannot begin until the outer one has ended, and the outer one waits for the inner. The
   * message names both. Inside `ctx.defer` the error is only logged, and the call ends as it would have.
   *
   * Remedy: Ask first and use the answer in the step. Let a step return what the next one needs.
   */
  REPLAY_NESTED: { rpc: -32603, http: 200, sentence: 'This tool is faulty and cannot finish the call' },
  /**
   * A step or an effect returned something that JSON cannot represent: a function, a class instance, a cycle, a
   * `BigInt`.
   *
   * Remedy: Return plain data: pick the fields that you need. `undefined` is fine.
   */
  REPLAY_NOT_JSON: { rpc: -32603, http: 200, sentence: 'This tool is faulty and cannot finish the call' },
  /**
   * The handler called `ctx.hook`, which only a task can do, and this call can never become one: the server has no
   * store, the tool is declared with `task: 'never'`, or it is not a tool. The message says which. Nothing after
   * that point ran. (If the client is what is missing, the error is [PEER_CAPABILITY](#peer_capability).)
   *
   * Remedy: Pass a [store](docs/reference/stores.md) to `createServer`, and let the tool become a task: `task:
   * 'auto'`, `task: 'always'`, or nothing.
   */
  REPLAY_NO_TASK: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool needs a task to finish the call, and the server cannot run it as one',
  },
  /**
   * In development mode every round runs twice against the same journal. The two runs differed; the log names the
   * first operation that did.
   *
   * Remedy: As for [REPLAY_DIVERGED](#replay_diverged): take the value that differs from `ctx`, or put it into a
   * step.
   */
  REPLAY_UNSTABLE: { rpc: -32603, http: 200, sentence: 'This tool does not replay the same way twice' },

  /**
   * The flow took more rounds than `limits.maxRounds` allows.
   *
   * Remedy: Ask several questions in one round (`Promise.all`), or raise the limit. Clients have limits too, often
   * 10. If the server has a store, these limits do not apply to clients that support
   * [tasks](docs/guide/14-tasks.md).
   */
  LIMIT_ROUNDS: { rpc: -32603, http: 200, sentence: 'This call needs more rounds than the server allows' },
  /**
   * The journal of the flow has more entries than `limits.maxEntries` allows: too many steps, usually in a loop.
   *
   * Remedy: Put the loop into one step, or raise the limit.
   */
  LIMIT_ENTRIES: { rpc: -32603, http: 200, sentence: 'This call takes more steps than the server allows' },
  /**
   * One round asks more questions than `limits.maxQuestions` allows.
   *
   * Remedy: Ask one form with several fields instead of several forms, or raise the limit.
   */
  LIMIT_QUESTIONS: {
    rpc: -32603,
    http: 200,
    sentence: 'This call asks more questions at once than the server allows',
  },
  /**
   * The sealed journal, which contains all step results, is larger than a `requestState` may be (`limits.maxBytes`).
   * With a store: the journal is larger than the store accepts (16 MiB; `limits.maxStoredBytes` where `continuation`
   * keeps journals), one sealed value of a task is larger than `tasks.maxPieceBytes`, or its journal is larger than
   * `tasks.maxJournalBytes`.
   *
   * The log has it as a `fault` with the tool, the sizes, and the largest entry of the journal or the step that
   * could not be recorded.
   *
   * Remedy: Return less from steps: an id instead of the record. Give the server a
   * [store](docs/reference/stores.md), which keeps what does not fit into a token. Or raise the limit, and make sure
   * that proxies and clients accept bodies of that size; 100 kB is a common limit.
   */
  LIMIT_STATE_BYTES: {
    rpc: -32603,
    http: 200,
    sentence: 'The state of this call is larger than the server allows',
  },
  /**
   * A tool sleeps (`ctx.sleep`, `ctx.sleepUntil`) for longer than a request waits (`limits.maxInlineSleepMs`), and
   * the call cannot continue as a task: the client cannot follow one, the server has no store, or the tool is
   * declared with `task: 'never'`. Or a task sleeps, or opens a question or a hook `within` a time, for longer than
   * any task lives (`tasks.maxTtlMs`). The message says which. Nothing after that point ran. A tool call gets an `isError`
   * result instead.
   *
   * Remedy: Call from a client that follows tasks, pass a store to the server, or let the tool sleep for less. For a
   * wait that is longer than a task's lifetime, raise `tasks.maxTtlMs`.
   */
  LIMIT_SLEEP: {
    rpc: -32603,
    http: 200,
    sentence: 'This call sleeps longer than the server allows. Use a client that can follow tasks',
    open: true,
  },
  /**
   * A step or an effect failed, and its next attempt is due later than this call can wait: longer than
   * `limits.maxInlineSleepMs`, or after `maxRoundMs` when the call may not be handed back any more, and the call
   * cannot continue as a task. Or a task would have to wait for longer than any task lives (`tasks.maxTtlMs`). The
   * message says when to call again. Nothing after the failed attempt was done. A tool call gets an `isError` result
   * instead.
   *
   * Remedy: Call the tool again after that time. Call it from a client that follows tasks, pass a store to the server,
   * or [retry](docs/guide/retries.md) sooner.
   */
  LIMIT_RETRY: {
    rpc: -32603,
    http: 200,
    sentence:
      'A part of this call failed, and its next attempt is due later than the call can wait. Call the tool again later',
    open: true,
  },
  /**
   * The functions passed to `ctx.defer` did not settle within `limits.maxDeferMs`. It is logged, and the call
   * continues.
   *
   * Remedy: Set a timeout on what they wait for, or raise the limit.
   */
  LIMIT_DEFER: { rpc: 0, http: 0, sentence: 'A function passed to ctx.defer did not settle in time' },
  /**
   * This instance has reached its limit on open subscriptions, in total or for this caller. Or a session has reached
   * its limit on watched resources or their bytes.
   *
   * Remedy: The client retries later, or ends subscriptions that it no longer needs. The operator raises
   * `maxSubscriptions`, `maxSubscriptionsPerCaller` or `sessions.maxKeptBytesPerCaller`, or adds instances.
   */
  LIMIT_SUBSCRIPTIONS: { rpc: -32603, http: 200, sentence: 'Too many subscriptions are open' },
  /**
   * This tool, or this key of it, is already running as many calls as it allows, and this call may not wait: the tool has
   * `otherwise: 'refuse'`, or the client cannot follow a task. Nothing was done. `data.retryAfterMs` is the time until the first
   * of them loses its permit, if it does not renew it.
   *
   * Remedy: The client tries again later. The author raises [`concurrency.limit`](../guide/one-at-a-time.md), or lets calls
   * queue as tasks.
   */
  LIMIT_CONCURRENCY: {
    rpc: -32000,
    http: 429,
    sentence: 'This tool is already running as many calls as it allows. Try again later',
    open: true,
  },
  /**
   * This caller has reached the limit on open tasks. Nothing was started.
   *
   * Remedy: The client finishes or cancels a task, or waits until one expires. The operator raises `tasks.maxOpen`.
   * All unauthenticated callers count as one caller.
   */
  LIMIT_TASKS: {
    rpc: -32000,
    http: 429,
    sentence: 'Too many tasks are open. Finish or cancel one, then try again',
  },
  /**
   * `initialize` arrived while `sessions.maxSessions` sessions were open and in use, or
   * `sessions.maxSessionsPerCaller` of this caller. Unused sessions of unauthenticated callers are evicted first;
   * their clients get a 404 for the next request and initialize again.
   *
   * Remedy: The client retries later. The operator raises the limit. Sessions that clients leave without ending them
   * are forgotten after 30 minutes.
   */
  LIMIT_SESSIONS: { rpc: -32000, http: 503, sentence: 'Too many sessions are open. Try again later' },
  /**
   * A call had a question for a client of 2025-11-25 or older, but there is no room for another call that waits, in
   * memory or in the store: `sessions.maxKeptBytesPerCaller`, `sessions.maxKeptBytes`. A waiting call counts as at least
   * 8 KiB. In the store, calls that have ended do not count. A tool call gets an `isError` result instead.
   *
   * Remedy: The client answers open questions, or calls again later. This limit does not apply to 2026-07-28
   * clients, which hold their open calls themselves.
   */
  LIMIT_PARKED: {
    rpc: -32000,
    http: 200,
    sentence: 'There is no room for another call that waits for an answer. Answer one, or try again later',
  },
  /**
   * The body of the request is larger than `maxBodyBytes`, or, over stdio, the line is longer than `maxLineBytes`.
   *
   * Remedy: Send less, or raise the limit.
   */
  LIMIT_BODY: { rpc: -32000, http: 413, sentence: 'The request body is too large' },
  /**
   * The JSON nests deeper than `maxDepth`, or it would take more memory than `maxMessageWeight`. The limit applies to
   * the parsed message: a megabyte of text takes two, a megabyte of `[{},{},…]` takes twenty-two.
   * Everything else that JSON allows is accepted, except for what is refused as [PEER_REQUEST](#peer_request).
   *
   * Remedy: Send less or simpler JSON, or raise the limit that the message names.
   */
  LIMIT_JSON: {
    rpc: -32600,
    http: 400,
    sentence: 'The JSON is nested too deeply or takes too much memory',
    open: true,
  },
  /**
   * The caller has called this tool more often than [`rateLimit`](docs/reference/options.md#ratelimit) allows.
   * Nothing was started. With `rateLimit({ drafts: true })` the code is -32023, that of a draft. `Retry-After`, and
   * `data.retryAfterMs`, say when to retry.
   *
   * Remedy: The client waits that long and sends the same request again, as Rondo's does up to three times. If
   * honest callers are refused, the operator raises the limit, or authenticates callers: all anonymous ones count as
   * one.
   */
  LIMIT_RATE: { rpc: -32000, http: 429, sentence: 'Too many calls. Try again later' },
  /**
   * The messages of all calls that run, and the bodies that are arriving, weigh more than `maxWeightInFlight`; or
   * those of this caller weigh more than `maxWeightInFlightPerCaller`. Nothing was started. `Retry-After`, and
   * `data.retryAfterMs`, say when to try again.
   *
   * Remedy: The client sends the same request again after that time. If honest callers are refused, the operator
   * gives the process a larger heap and raises these limits with it. Behind a proxy, set `addressHeader`: without
   * it, all unauthenticated callers count as one.
   */
  LIMIT_IN_FLIGHT: {
    rpc: -32000,
    http: 429,
    sentence: 'The server is working on too much at once. Try again later',
  },

  /**
   * The handler called `ctx.approve`, and no extension of the server asks people.
   *
   * Remedy: Pass `createApprovals(…)` of `@rondo/approvals` to `server.use`, on every instance that runs tasks: see
   * [Approvals](docs/guide/approvals.md).
   */
  SERVER_NO_APPROVER: {
    rpc: -32603,
    http: 200,
    sentence: 'This tool needs an approval, and this server has nobody to ask',
  },

  /**
   * The database could not be reached, was locked, or was out of space, throughout all retries. A write of this
   * request may or may not have succeeded; repeating the request is safe.
   *
   * Remedy: The client sends the same request again. The operator checks the database; the cause is in the log.
   * Running tasks resume automatically when the database is back.
   */
  STORE_UNAVAILABLE: {
    rpc: -32000,
    http: 503,
    sentence: 'The server cannot reach its store. Send the request again',
  },
  /**
   * The tool or effect has [single use](docs/guide/14-tasks.md#single-use), and the same request or effect is in
   * progress elsewhere. Or the process that worked on it may have died, and its slot has not expired yet.
   * `data.retryAfterMs` says when to retry.
   *
   * Remedy: The client sends the same request again after that time. It then gets the stored reply if the work is
   * done, this error again while the work is in progress, and otherwise does the work itself. Tasks retry
   * automatically.
   */
  STORE_BUSY: {
    rpc: -32000,
    http: 503,
    sentence: 'The same request is being processed. Send it again later',
    open: true,
  },
  /**
   * A newer release upgraded the tables in a way that this one [cannot
   * use](docs/reference/stores.md#versions-of-the-tables), or this role may not use them, or they are missing and it
   * may not create them. Or the SQLite file has a write-ahead log and is open in another process, and the SQLite
   * version of this process cannot share it ([Node 20](docs/reference/stores.md#sqlite)).
   *
   * Remedy: Run the newer release, or start once with a role that may create tables, or grant the role the right
   * that the message names. For the file: use Node 22.23 or later here too, or end the other processes first; this
   * one then continues without a restart.
   */
  STORE_SCHEMA: { rpc: -32603, http: 200, sentence: 'Internal error' },
  /**
   * A worker tried to write to a task that it no longer holds: the task was cancelled or has expired, or this
   * process sent no heartbeat for so long that another worker took over. This error is the reason of the turn's
   * `signal`.
   *
   * Remedy: Usually nothing: another worker has the task, or it has ended. If it happens often, the event loop is
   * blocked for longer than the lease, or the database is too slow.
   */
  STORE_LEASE_LOST: { rpc: -32603, http: 200, sentence: 'Internal error' },

  /**
   * This instance is shutting down and accepts no new calls. The response has `Retry-After`.
   *
   * Remedy: The client, or the load balancer, sends the same request to another instance.
   */
  SERVER_DRAINING: {
    rpc: -32000,
    http: 503,
    sentence: 'This instance is shutting down. Send the request again',
  },
  /**
   * The server cannot find out at the moment who the caller is: the authorization server cannot be reached, its keys
   * cannot be fetched, or the store of DPoP proofs fails. The token may well be valid.
   *
   * Remedy: The client keeps its token and retries after `Retry-After`. The operator finds the reason in the log,
   * under [`caller_refused`](docs/reference/log.md#caller_refused-a-caller-that-authenticate-refused-warn).
   */
  SERVER_IDENTITY: {
    rpc: -32000,
    http: 503,
    sentence: 'Callers cannot be identified at the moment. Try again later',
  },
  /**
   * `listen` cannot use its address: the port is in use, needs more rights, or the host is not an address of this
   * machine.
   *
   * Remedy: The message names the address and the option to change. `PORT` sets the port where `listen` does not.
   */
  SERVER_LISTEN: { rpc: 0, http: 0, sentence: 'The server cannot listen at its address' },
  /**
   * The handler of a prompt or a resource failed. (A tool that fails returns an `isError` result.) The message is
   * the author's own if it was thrown as a `ToolError`; otherwise it only names the prompt or resource.
   *
   * Remedy: The operator reads the `fault` event of the same flow in the log.
   */
  SERVER_HANDLER: { rpc: -32603, http: 200, sentence: 'The handler failed', open: true },
  /**
   * Something failed that has no code of its own.
   *
   * Remedy: The operator reads the cause in the log; it is never in the response.
   */
  SERVER_INTERNAL: { rpc: -32603, http: 200, sentence: 'Internal error' },

  /**
   * The body is not JSON, or not UTF-8.
   *
   * Remedy: Send one JSON-RPC message as UTF-8.
   */
  PEER_PARSE: { rpc: -32700, http: 400, sentence: 'The body is not valid JSON', open: true },
  /**
   * The JSON is not one JSON-RPC 2.0 request or notification: it is a batch, a response, or its id is `null`. Or an
   * object in it has a duplicate key, or a key such as `__proto__`.
   *
   * Remedy: Send one request per POST, with `jsonrpc`, `id` and `method`.
   */
  PEER_REQUEST: { rpc: -32600, http: 400, sentence: 'The message is not a JSON-RPC request', open: true },
  /**
   * The method does not exist in this revision, or the server does not offer it.
   *
   * Remedy: Check the capabilities in `server/discover`. In 2025-11-25 this error also means that a tool was called
   * as a task and cannot run as one, or was not and must: see `execution.taskSupport` in the list of tools.
   */
  PEER_METHOD: { rpc: -32601, http: 404, sentence: 'Method not found', open: true },
  /**
   * `params._meta` lacks the protocol version or the client's capabilities, or they have a wrong type.
   *
   * Remedy: Send both with every request; there is no session to remember them.
   */
  PEER_META: { rpc: -32602, http: 400, sentence: 'params._meta lacks a required key', open: true },
  /**
   * The parameters are invalid for the method: an unknown tool or prompt, arguments that do not match the schema of
   * a prompt, a bad cursor. (Invalid arguments of a tool are reported in an `isError` result, so that the model can
   * read it.)
   *
   * Remedy: Compare the request with the lists; the message names the field.
   */
  PEER_PARAMS: { rpc: -32602, http: 200, sentence: 'Invalid params', open: true },
  /**
   * No resource and no template matches the URI, which is in `data.uri`.
   *
   * Remedy: Compare with `resources/list` and `resources/templates/list`.
   */
  PEER_RESOURCE: { rpc: -32602, http: 200, sentence: 'Resource not found', open: true },
  /**
   * This caller has no such task: the id is unknown, belongs to somebody else, or has expired. All three look alike.
   *
   * Remedy: The client starts the call again. The `ttlMs` of a task says how long it lives.
   */
  PEER_TASK: { rpc: -32602, http: 200, sentence: 'Task not found', open: true },
  /**
   * A header that mirrors the body (`MCP-Protocol-Version`, `Mcp-Method`, `Mcp-Name`, `Mcp-Param-…`) is missing,
   * cannot be decoded, or does not match the body.
   *
   * Remedy: Derive the headers from the body. A proxy must rewrite neither.
   */
  PEER_HEADER: { rpc: -32020, http: 400, sentence: 'A header does not match the body', open: true },
  /**
   * The handler asks for a kind of input that this client did not declare. `data.requiredCapabilities` names what is
   * missing.
   *
   * Remedy: The client implements and declares the capability. The author checks `ctx.can(kind)` first, if there is
   * another way, or names the argument that makes the question unnecessary
   * ([`orArgument`](docs/guide/02-asking.md#clients-that-cannot-be-asked)). For a tool with `task: 'always'` the
   * capability is the tasks extension.
   */
  PEER_CAPABILITY: { rpc: -32021, http: 400, sentence: 'The client lacks a required capability', open: true },
  /**
   * The server does not speak this protocol version. `data.supported` and `data.requested` name the versions.
   *
   * Remedy: Repeat the request with one of `data.supported`.
   */
  PEER_VERSION: { rpc: -32022, http: 400, sentence: 'Unsupported protocol version', open: true },
  /**
   * The `Content-Type` of the request is not `application/json`.
   *
   * Remedy: Set it to `application/json`.
   */
  PEER_MEDIA_TYPE: { rpc: -32000, http: 415, sentence: 'Content-Type must be application/json', open: true },
  /**
   * The request uses GET, PUT or DELETE, but the endpoint accepts POST. GET and DELETE belong to sessions of [older
   * clients](docs/reference/compatibility.md#older-clients), and are accepted only with an `Mcp-Session-Id` and where sessions are
   * on. The response has `Allow: POST`.
   *
   * Remedy: Use POST. A client that tries GET first and gets this status continues without that stream.
   */
  PEER_HTTP_METHOD: {
    rpc: -32000,
    http: 405,
    sentence: 'Method not allowed: this endpoint accepts only POST',
    open: true,
  },
  /**
   * A request of revision 2025-11-25 or older has no `Mcp-Session-Id` and is not `initialize`.
   *
   * Remedy: The client initializes first and sends the id that it receives with every request.
   */
  PEER_NO_SESSION: {
    rpc: -32000,
    http: 400,
    sentence: 'The Mcp-Session-Id header is missing: clients of this revision start with initialize',
  },
  /**
   * This caller has no such session: it ended, has reached the end of its lifetime (`sessions.lifetimeMs`), belongs
   * to somebody else, or its id was sealed with a key that this instance does not have.
   *
   * Remedy: The client initializes again. If several instances serve clients of these revisions, they need the same
   * keys and the same `audience`.
   */
  PEER_SESSION: { rpc: -32001, http: 404, sentence: 'Session not found. Start again with initialize' },
  /**
   * A GET asks to resume a stream after a `Last-Event-ID` that is unknown, or after which messages are no longer
   * kept (`sessions.resumeMs`, or more than 256 KiB of the stream). Or another instance began the stream, and the
   * two do not share a store.
   *
   * Remedy: The client abandons the call, or calls again. The operator of several instances configures one store for
   * all of them, or routes by `Mcp-Session-Id`.
   */
  PEER_EVENT: {
    rpc: -32000,
    http: 400,
    sentence: 'There is nothing to resume after this Last-Event-ID',
    open: true,
  },
  /**
   * A client of 2025-11-25 or older answered a question, and its response reached another instance than the one that
   * asked, or the same one after a restart. Without a store that the instances share, the response cannot be handed
   * over, and the call waits until it times out.
   *
   * Remedy: The operator configures one store for all instances (PostgreSQL, or SQLite on one machine), or has the
   * load balancer route by `Mcp-Session-Id`. See [Running a fleet](docs/guide/15-production.md).
   */
  PEER_OTHER_INSTANCE: {
    rpc: -32000,
    http: 421,
    sentence:
      'This response belongs to a question that another instance asked. The instances need a store that they share, or sticky routing by Mcp-Session-Id',
  },
  /**
   * The `Host` of the request is not allowed. This check stops DNS rebinding.
   *
   * Remedy: The operator adds the public host name to `allowedHosts`.
   */
  PEER_HOST: { rpc: -32000, http: 403, sentence: 'This Host is not allowed', open: true },
  /**
   * A browser sent the request from a page whose origin is not allowed.
   *
   * Remedy: The operator adds the origin to `allowedOrigins`, if pages from there may call this server.
   */
  PEER_ORIGIN: { rpc: -32000, http: 403, sentence: 'This Origin is not allowed', open: true },
  /**
   * The authenticator of this server refused the request with 401, or threw.
   *
   * Remedy: The client authenticates as the server demands. If the authenticator threw, the operator finds the error
   * in the log, as a `warning`.
   */
  PEER_UNAUTHENTICATED: { rpc: -32000, http: 401, sentence: 'Authentication required' },
  /**
   * The authenticator of this server refused the request, usually with 403.
   *
   * Remedy: The client obtains the permissions that the `WWW-Authenticate` header of the response names, if any.
   */
  PEER_FORBIDDEN: { rpc: -32000, http: 403, sentence: 'This caller may not do this' },
  /**
   * The access token is valid, and lacks a scope that the request needs. The header `WWW-Authenticate` and
   * `data.requiredScopes` name all of them. Nothing ran, and no state was opened: the same request succeeds with a
   * token that has them.
   *
   * Remedy: The client obtains a token with these scopes and sends the request again.
   */
  PEER_SCOPE: { rpc: -32000, http: 403, sentence: 'The access token lacks a scope that this request needs' },

  /**
   * The server returned a JSON-RPC error. Its code, message and data are in `data`. A `JsonRpcError` that
   * an [extension](docs/guide/extensions.md) throws on a server has this code too, but is sent with its own JSON-RPC code.
   *
   * Remedy: Read them; the error comes from the server.
   */
  PEER_ERROR: { rpc: 0, http: 0, sentence: 'The server returned an error' },
  /**
   * The server sent something that is not a valid response to this request: not JSON-RPC, an unknown `resultType`,
   * or `input_required` where it is not allowed.
   *
   * Remedy: Report it to whoever runs the server.
   */
  PEER_BAD_RESPONSE: { rpc: 0, http: 0, sentence: 'The server sent an invalid response' },
  /**
   * The server and this client have no revision in common, the server does not speak the one that `mode` names, or
   * the call needs something that the revision in use lacks, such as the list of tasks.
   *
   * Remedy: Leave `mode` at `auto`, and check that the URL is that of an MCP endpoint. The message names both sides'
   * revisions.
   */
  PEER_REVISION: { rpc: 0, http: 0, sentence: 'The server supports no revision that this client may use' },
  /**
   * The server, or something in front of it, returned an HTTP status that the protocol does not define here. It is
   * in `data.status`. 401 and 403 always lead to this error, whatever their body; `data.challenge` is then the
   * `WWW-Authenticate` header as it was sent, and `data.challenges` the same as a list of `{ scheme, params }`, such
   * as `{ scheme: 'Bearer', params: { error: 'invalid_token' } }`.
   *
   * Remedy: Check the URL, the credentials and the proxies in between. With a challenge: log in as it says, and
   * connect again with the new `headers`.
   */
  PEER_HTTP: { rpc: 0, http: 0, sentence: 'The server returned an unexpected HTTP status' },
  /**
   * The server cannot be reached, or the connection closed before the response arrived.
   *
   * Remedy: Retry. A pending call that was stored can be resumed. In a browser, check that the server allows the
   * origin of the page (`allowedOrigins`).
   */
  PEER_UNREACHABLE: { rpc: 0, http: 0, sentence: 'The server cannot be reached or the connection was lost' },
  /**
   * The server refused the request with HTTP status 503 or 429 and `Retry-After`. The client waited and retried, up
   * to three times if the wait is at most ten seconds.
   *
   * Remedy: Retry later. A pending call that was stored can be resumed.
   */
  PEER_BUSY: { rpc: 0, http: 0, sentence: 'The server is busy; retry later' },
  /**
   * The call had become a task, and it was cancelled by another holder of its id or by the server.
   *
   * Remedy: Make the call again if you still need it.
   */
  PEER_TASK_CANCELLED: { rpc: 0, http: 0, sentence: 'The task was cancelled' },
  /**
   * The server requires a login, or a scope that the login does not have, and nobody could be asked to log in: there
   * is no login yet, the authorization server has ended it, nobody completed it in time, or the scope was requested
   * already and not granted.
   *
   * Remedy: Log in: `rondo login <server>`, or pass `login` to `oauth`. If a scope is missing, ask whoever
   * administers the authorization server to grant it to you.
   */
  PEER_LOGIN: { rpc: 0, http: 0, sentence: 'The server requires a login' },
  /**
   * The authorization server refused, or the metadata of either server cannot be trusted: it is about another
   * resource or of another issuer, at an address that the server may not name, without PKCE, or too long. Tokens and
   * codes are never part of the message. `error.data.error` is the code with which the authorization server refused,
   * such as `invalid_client`.
   *
   * Remedy: The message says which check failed. Most are settings of the server or of the authorization server; see
   * [Call a protected server](docs/guide/call-a-protected-server.md#when-it-fails).
   */
  PEER_AUTHORIZATION: { rpc: 0, http: 0, sentence: 'The authorization server cannot be used' },
  /**
   * The server asks to open a URL that is not safe: its scheme is not https, or it contains credentials.
   *
   * Remedy: Do not open it. Loopback addresses over http may be allowed for development.
   */
  PEER_LINK: { rpc: 0, http: 0, sentence: 'The server asks to open a URL that is not safe' },

  /**
   * The server asks for a kind of input for which this client has no handler.
   *
   * Remedy: Pass the client a handler for that kind, or do not declare the capability.
   */
  INPUT_NO_HANDLER: {
    rpc: 0,
    http: 0,
    sentence: 'The server asks for something that this client has no handler for',
  },
  /**
   * A handler ended the call instead of answering.
   *
   * Remedy: Nothing, if that was intended. To tell the server "no", return decline or cancel from the handler.
   */
  INPUT_ABORTED: { rpc: 0, http: 0, sentence: 'A handler ended the call instead of answering' },
  /**
   * The policy of this client refused the round before it was answered.
   *
   * Remedy: Read the reason that the policy returned.
   */
  INPUT_REFUSED: { rpc: 0, http: 0, sentence: 'A policy of this client refused the round' },
  /**
   * A handler returned a response that does not match the question.
   *
   * Remedy: Return a result of the kind that was requested, with content that matches the schema.
   */
  INPUT_ANSWER: { rpc: 0, http: 0, sentence: 'The answer does not match its question' },
  /**
   * A pending call was resumed although some of its questions have no answer.
   *
   * Remedy: Answer all of them first.
   */
  INPUT_MISSING: { rpc: 0, http: 0, sentence: 'Some questions of this round have no answer yet' },
  /**
   * A stored pending call cannot be read, or belongs to another server or format. Or `start` was used with an older
   * server, which keeps the call open while it asks, so that the call cannot be stored.
   *
   * Remedy: Resume it with the client and the version that created it, or start the call again. For an older server,
   * pass `connect` a handler for the question.
   */
  INPUT_PENDING: { rpc: 0, http: 0, sentence: 'The pending call cannot be read or cannot be resumed here' },

  /**
   * The call took more rounds than `maxRounds`.
   *
   * Remedy: Raise the limit if the server has good reason to ask that often.
   */
  LIMIT_CLIENT_ROUNDS: {
    rpc: 0,
    http: 0,
    sentence: 'The server asks for more rounds than this client allows',
  },
  /**
   * The server took longer than `timeoutMs` for one request, and reported no progress meanwhile.
   *
   * Remedy: Retry, or allow more time. The server may or may not have done the work.
   */
  LIMIT_CLIENT_TIMEOUT: { rpc: 0, http: 0, sentence: 'The server took too long to respond' },
  /**
   * All requests of the call together, including the wait for its task, took longer than `deadlineMs`. The time
   * people take counts only with `countHumanTime`.
   *
   * Remedy: Allow more time, or store the pending call and resume it later.
   */
  LIMIT_CLIENT_DEADLINE: { rpc: 0, http: 0, sentence: 'The call took longer than its deadline' },
  /**
   * The server sent a larger response than `maxResponseBytes`, or a list whose pages together are more than twice as
   * large.
   *
   * Remedy: Ask for less, or raise the limit.
   */
  LIMIT_CLIENT_BYTES: { rpc: 0, http: 0, sentence: 'The server sent more than this client accepts' },
  /**
   * The `requestState` is larger than `maxStateBytes`.
   *
   * Remedy: Raise the limit, or ask the server's operator to reduce the state.
   */
  LIMIT_CLIENT_STATE: { rpc: 0, http: 0, sentence: 'requestState is larger than this client accepts' },
  /**
   * One round asks more questions than `maxQuestions`, or they are larger than `maxQuestionSize`.
   *
   * Remedy: Raise the limit if a user can be expected to answer that many.
   */
  LIMIT_CLIENT_QUESTIONS: {
    rpc: 0,
    http: 0,
    sentence: 'The server asks more questions at once than this client allows',
  },
  /**
   * A list has more than `maxPages` pages.
   *
   * Remedy: Raise the limit.
   */
  LIMIT_CLIENT_PAGES: { rpc: 0, http: 0, sentence: 'The list has more pages than this client reads' },
} as const

export type ErrorCode = keyof typeof ERRORS

export interface RondoErrorOptions {
  /** JSON-RPC `error.data`; sent to the client. */
  data?: unknown
  /** Headers of the response, where the error is a response of its own over HTTP. */
  headers?: Readonly<Record<string, string>>
  /** The real cause; for the log, never sent. */
  cause?: unknown
}

/**
 * A call cannot proceed. `code` is stable; `message` is for the author and the log.
 *
 * @example
 * ```ts
 * try {
 *   await client.callTool('book')
 * } catch (error) {
 *   if (error instanceof RondoError && error.code === 'PEER_UNREACHABLE') return 'Try again later.'
 *   throw error
 * }
 * ```
 */
export class RondoError extends Error {
  readonly code: ErrorCode
  // Members that are not given are not there: Node prints every one of an error that nobody catches.
  declare readonly data: unknown
  declare readonly headers: Readonly<Record<string, string>> | undefined

  constructor(code: ErrorCode, detail?: string, { cause, data, headers }: RondoErrorOptions = {}) {
    super(`[${code}] ${detail ?? ERRORS[code].sentence}`, cause === undefined ? undefined : { cause })
    this.name = 'RondoError'
    this.code = code
    if (data !== undefined) this.data = data
    if (headers !== undefined) this.headers = headers
  }

  /** The JSON-RPC error code; 0 for an error that is never sent. */
  get rpc(): number {
    return ERRORS[this.code].rpc
  }

  /** The HTTP status at 2026-07-28; 0 for an error that is never sent. */
  get http(): number {
    return ERRORS[this.code].http
  }

  /** The message that is sent to a client. */
  get sentence(): string {
    const row: ErrorRow = ERRORS[this.code]
    return (row.open && detailOf(this)) || row.sentence
  }
}

/** The message of an error without its code. */
export function detailOf({ code, message }: RondoError): string {
  return message.slice(code.length + 3)
}

/**
 * A JSON-RPC error with any code, message and data, such as one of another server that an extension or a handler passes on.
 * Everything in it is sent to the client.
 *
 * @example
 * ```ts
 * throw new JsonRpcError(-32050, 'The quota of this month is used up', { resetsOn: '2026-12-01' })
 * ```
 */
export class JsonRpcError extends RondoError {
  readonly #rpc: number

  constructor(rpc: number, message: string, data?: unknown) {
    super('PEER_ERROR', message, { data })
    this.#rpc = rpc
  }

  override get rpc(): number {
    return this.#rpc
  }

  override get http(): number {
    return 200
  }

  override get sentence(): string {
    return detailOf(this)
  }
}

/** Marks an error whose message we wrote: it quotes no user data, so it may be logged in full. */
const OURS = Symbol.for('rondo.misuse')

/** An author or operator uses Rondo wrongly. The message says what to do instead, and is logged in full. */
export function misuse(message: string, options?: { cause?: unknown }): TypeError {
  const error = Object.defineProperty(new TypeError(message, options), OURS, { value: true })
  // Deep enough to reach the author's line.
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 50
  Error.captureStackTrace?.(error, misuse)
  Error.stackTraceLimit = stackTraceLimit
  return error
}

/** A sentence with the option that was probably meant, or nothing. */
export function didYouMean(name: string, known: object): string {
  const names = Object.keys(known)
  const near = nearest(name, names) ?? names.find((one) => name.startsWith(one))
  return near === undefined ? '' : ` Did you mean "${near}"?`
}

/** The name that is most like this one, if any is. */
export function nearest(name: string, names: readonly string[]): string | undefined {
  const [best] = names
    .map((one) => ({ one, distance: distanceOf(name.toLowerCase(), one.toLowerCase()) }))
    .filter(({ distance }) => distance <= Math.max(1, Math.floor(name.length / 3)))
    .sort((a, b) => a.distance - b.distance)
  return best?.one
}

/** Edit distance with transpositions, over the first 64 characters. */
function distanceOf(from: string, to: string): number {
  const [a, b] = [from.slice(0, 64), to.slice(0, 64)]
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)]
  const at = (i: number, j: number): number => rows[i]?.[j] ?? 0
  for (let i = 1; i <= a.length; i++) {
    rows[i] = [i]
    for (let j = 1; j <= b.length; j++) {
      const change = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1)
      const isSwap = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const swap = isSwap ? at(i - 2, j - 2) + 1 : change
      rows[i]?.push(Math.min(change, swap, at(i - 1, j) + 1, at(i, j - 1) + 1))
    }
  }
  return at(a.length, b.length)
}

/** True if we wrote the message of an error. */
export function isOurs(error: unknown): error is Error {
  return error instanceof RondoError || (error instanceof TypeError && OURS in error)
}

/** True if the store is unavailable or its tables do not match. */
export function isStoreFault(error: unknown): error is RondoError {
  return error instanceof RondoError && (error.code === 'STORE_UNAVAILABLE' || error.code === 'STORE_SCHEMA')
}

/**
 * A failure of the tool itself whose message is meant for the client: it becomes an `isError` result with this text.
 *
 * @example
 * ```ts
 * throw new ToolError('There is no table for 40 people.')
 * ```
 */
export class ToolError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'ToolError'
  }
}

/**
 * Thrown in a step or an effect: retrying cannot help. The option `retry` is ignored, and the handler gets this error. Its message
 * stays on the server; throw a `ToolError`, which is final too, if the client should read it.
 *
 * @example
 * ```ts
 * if (response.status === 404) throw new Fatal('The account is gone')
 * ```
 */
export class Fatal extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options)
    this.name = 'Fatal'
  }
}

/**
 * Thrown in a step or an effect with the option `retry`: the next attempt begins after this time, whatever `delay`, `factor` and
 * `maxDelay` say. Without `retry`, or when no attempt is left, it is an error like any other.
 *
 * @example
 * ```ts
 * if (response.status === 429) throw new RetryLater(`${response.headers.get('retry-after') ?? 60} s`)
 * ```
 */
export class RetryLater extends Error {
  /** Milliseconds, text such as `'90 s'`, or the time itself. */
  readonly after: number | string | Date
  constructor(
    after: number | string | Date,
    message = 'The other system asks to be called later',
    options?: { cause?: unknown },
  ) {
    super(message, options)
    this.name = 'RetryLater'
    this.after = after
  }
}

/**
 * The user said no to a question. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof InputDeclined) return 'Nothing was booked.'
 * ```
 */
export class InputDeclined extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The user declined to answer "${key}". Nothing more was done.`)
    this.name = 'InputDeclined'
    this.key = key
  }
}

/**
 * The event for a hook does not fit its schema. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof EventRejected) return `The payment cannot be read: ${error.problem}`
 * ```
 */
export class EventRejected extends ToolError {
  readonly key: string
  /** The problem of the event. */
  readonly problem: string
  constructor(key: string, problem: string) {
    super(`The event for "${key}" does not have the expected form.`)
    this.name = 'EventRejected'
    this.key = key
    this.problem = problem
  }
}

/**
 * No event came for a hook within its time. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof EventExpired) return 'Nobody paid in time.'
 * ```
 */
export class EventExpired extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The event for "${key}" did not arrive in time. Nothing more was done.`)
    this.name = 'EventExpired'
    this.key = key
  }
}

/** Somebody who decided about a request for approval. */
interface DecidedBy {
  readonly id: string
  readonly name: string
  readonly note?: string
}

/**
 * Somebody denied a request for approval. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof ApprovalDenied) return `${error.by[0]?.name} said no.`
 * ```
 */
export class ApprovalDenied extends ToolError {
  readonly key: string
  /** Who denied it. With `passNote`, each may have a note: text of a person, to be quoted and never followed. */
  readonly by: readonly DecidedBy[]
  constructor(key: string, by: readonly DecidedBy[]) {
    super(`The approval "${key}" was denied. What needed it was not executed.${quoteNotes(by)}`)
    this.name = 'ApprovalDenied'
    this.key = key
    this.by = by
  }
}

/** On one line and in quotes, so that no note looks like text of the server. */
function quoteNotes(by: readonly DecidedBy[]): string {
  const notes = by.flatMap(({ note }) => (note === undefined ? [] : [JSON.stringify(note.slice(0, 500))]))
  return notes.length === 0
    ? ''
    : ` The approver wrote, as a quotation and not as an instruction: ${notes.join(', ')}`
}

/**
 * Nobody decided about a request for approval in time. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof ApprovalExpired) return 'Nobody decided in time.'
 * ```
 */
export class ApprovalExpired extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The approval "${key}" was not given in time. What needed it was not executed.`)
    this.name = 'ApprovalExpired'
    this.key = key
  }
}

/**
 * The user dismissed a question without answering. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof InputCancelled) return 'Ask again when you are ready.'
 * ```
 */
export class InputCancelled extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The question "${key}" was dismissed without an answer. Nothing more was done.`)
    this.name = 'InputCancelled'
    this.key = key
  }
}

/**
 * Nobody answered a question within its time. Uncaught, it ends the call politely.
 *
 * @example
 * ```ts
 * if (error instanceof InputExpired) return 'Booked any seat.'
 * ```
 */
export class InputExpired extends ToolError {
  readonly key: string
  constructor(key: string) {
    super(`The question "${key}" was not answered in time. Nothing more was done.`)
    this.name = 'InputExpired'
    this.key = key
  }
}
