// A client of the JavaScript SDK that does what it is told: `node client.mjs PACKAGE URL BINDING VERSION CREDENTIALS`.
//
// One JSON object a line comes in, {"id", "call", "argument", "stop"}: a method of the SDK's client and its one argument, as the
// protocol's JSON; "stop" is the number of events after which a stream is left. What comes back names the same id: {"value"}
// for an answer, {"event"} for each event of a stream and then {"done": true}, {"error"} for what was thrown.
//
// CREDENTIALS is JSON: "headers" go with every request, "renewed" instead of them once the agent has asked for others.

import { createInterface } from 'node:readline';
import { inspect } from 'node:util';

const [name, url, binding, version, credentials] = process.argv.slice(2);
const types = await import(name);
const sdk = await import(`${name}/client`);

// The newest SDK's methods take and give objects of its generated types, those of 0.3 plain JSON.
const typed = types.SendMessageRequest?.fromJSON !== undefined;
const REQUESTS = {
  sendMessage: 'SendMessageRequest',
  sendMessageStream: 'SendMessageRequest',
  getTask: 'GetTaskRequest',
  listTasks: 'ListTasksRequest',
  cancelTask: 'CancelTaskRequest',
  resubscribeTask: 'SubscribeToTaskRequest',
  createTaskPushNotificationConfig: 'TaskPushNotificationConfig',
  getTaskPushNotificationConfig: 'GetTaskPushNotificationConfigRequest',
  listTaskPushNotificationConfig: 'ListTaskPushNotificationConfigsRequest',
  deleteTaskPushNotificationConfig: 'DeleteTaskPushNotificationConfigRequest',
};
const ANSWERS = {
  sendMessage: (value) => ('messageId' in value ? 'Message' : 'Task'),
  sendMessageStream: () => 'StreamResponse',
  getTask: () => 'Task',
  listTasks: () => 'ListTasksResponse',
  cancelTask: () => 'Task',
  resubscribeTask: () => 'StreamResponse',
  createTaskPushNotificationConfig: () => 'TaskPushNotificationConfig',
  getTaskPushNotificationConfig: () => 'TaskPushNotificationConfig',
  listTaskPushNotificationConfig: () => 'ListTaskPushNotificationConfigsResponse',
  getAgentCard: () => 'AgentCard',
};

const request = (call, argument) =>
  typed && REQUESTS[call] ? types[REQUESTS[call]].fromJSON(argument ?? {}) : argument;
const answer = (call, value) =>
  typed && ANSWERS[call] && value ? types[ANSWERS[call](value)].toJSON(value) : (value ?? null);

// Credentials are sent as the SDK offers it: with every request, and anew once it has been told that they are not those.
let lastStatus;
const watched = async (...request) => {
  const response = await fetch(...request);
  lastStatus = response.status;
  return response;
};
const { headers, renewed } = JSON.parse(credentials);
const fetchImpl = sdk.createAuthenticatingFetchWithRetry(watched, {
  headers: async () => headers ?? {},
  shouldRetryWithHeaders: async (_, response) =>
    (response.status === 401 && response.headers.has('WWW-Authenticate') ? renewed : undefined),
});

// With a card of 1.0 the newest SDK speaks 1.0; it speaks 0.3 where the card is one of 0.3 and it was told to be compatible.
async function connect() {
  const old = typed && version === '0.3' ? { legacyCompat: { enabled: true } } : {};
  const options = { fetchImpl, ...old };
  const factory = new sdk.ClientFactory({
    preferredTransports: [binding],
    transports: [new sdk.JsonRpcTransportFactory(options), new sdk.RestTransportFactory(options)],
    cardResolver: new sdk.DefaultAgentCardResolver(old),
  });
  if (!old.legacyCompat) return factory.createFromUrl(url);
  const answer = await fetch(`${url}/.well-known/agent-card.json`, { headers: { 'A2A-Version': '0.3' } });
  return factory.createFromAgentCard(await answer.json());
}

const client = await connect();
const say = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);

const told = (error) => ({ class: error.constructor?.name ?? 'none', details: inspect(error, { depth: 4 }), status: lastStatus });

// What the newest SDK has for those who are told of tasks: the type of 1.0, and a function for what comes in the form of 0.3.
async function readNotification(body) {
  if (version === '1.0') return types.StreamResponse.fromJSON(body);
  return (await import(`${name}/compat/v0_3`)).legacyPushNotificationToV1StreamResponse(body);
}

async function act({ id, call, argument, stop }) {
  try {
    if (call === 'transport') {
      const { protocolName, protocolVersion, constructor } = client.transport;
      const bindings = { _JsonRpcTransport: 'JSONRPC', _RestTransport: 'HTTP+JSON' };
      return say({ id, value: [protocolName ?? bindings[constructor.name], protocolVersion ?? version] });
    }
    if (call === 'readNotification') return say({ id, value: types.StreamResponse.toJSON(await readNotification(argument)) });
    const options = {};
    const result = argument === undefined ? client[call](options) : client[call](request(call, argument), options);
    if (typeof result?.[Symbol.asyncIterator] !== 'function') {
      return say({ id, value: answer(call, await result) });
    }
    let events = 0;
    for await (const event of result) {
      say({ id, event: answer(call, event) });
      events += 1;
      if (events === stop) break;
    }
    return say({ id, done: true });
  } catch (error) {
    return say({ id, error: told(error) });
  }
}

say({ id: 0, value: typed });
createInterface({ input: process.stdin }).on('line', (line) => act(JSON.parse(line))).on('close', () => process.exit(0));
