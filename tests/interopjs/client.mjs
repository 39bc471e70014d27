// Runs calls of a JavaScript SDK's client: `node client.mjs PACKAGE URL BINDING VERSION CREDENTIALS`.
//
// Input: one JSON object per line, {"id", "call", "argument", "stop"}: a method of the SDK's client and its argument, as protocol
// JSON; "stop" is the number of events after which a stream is closed. Output: objects with the same id and {"value"} for a result,
// {"event"} for each event of a stream followed by {"done": true}, or {"error"} for an exception.
//
// CREDENTIALS is JSON: "headers" are sent with every request, and replaced by "renewed" after a 401.

import { createInterface } from 'node:readline';
import { inspect } from 'node:util';

const [name, url, binding, version, credentials] = process.argv.slice(2);
const types = await import(name);
const sdk = await import(`${name}/client`);

// The newest SDK's methods use objects of its generated types, those of 0.3 plain JSON.
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

// Credentials are sent with the SDK's own mechanism: with every request, and replaced after a challenge.
let lastStatus;
const fetchAndRecordStatus = async (...request) => {
  const response = await fetch(...request);
  lastStatus = response.status;
  return response;
};
const { headers, renewed } = JSON.parse(credentials);
const fetchImpl = sdk.createAuthenticatingFetchWithRetry(fetchAndRecordStatus, {
  headers: async () => headers ?? {},
  shouldRetryWithHeaders: async (_, response) =>
    (response.status === 401 && response.headers.has('WWW-Authenticate') ? renewed : undefined),
});

// The newest SDK speaks 1.0 with a card of 1.0, and 0.3 with a card of 0.3 if its compatibility option is set.
async function connect() {
  const old = typed && version === '0.3' ? { legacyCompat: { enabled: true } } : {};
  const options = { fetchImpl, ...old };
  const transports = [new sdk.JsonRpcTransportFactory(options), new sdk.RestTransportFactory(options)];
  if (binding === 'GRPC') transports.push(new (await import(`${name}/client/grpc`)).GrpcTransportFactory(old));
  const factory = new sdk.ClientFactory({
    preferredTransports: [binding],
    transports,
    cardResolver: new sdk.DefaultAgentCardResolver(old),
  });
  if (!old.legacyCompat) return factory.createFromUrl(url);
  const answer = await fetch(`${url}/.well-known/agent-card.json`, { headers: { 'A2A-Version': '0.3' } });
  return factory.createFromAgentCard(await answer.json());
}

const client = await connect();
const write = (object) => process.stdout.write(`${JSON.stringify(object)}\n`);

const describe = (error) => ({ class: error.constructor?.name ?? 'none', details: inspect(error, { depth: 4 }), status: lastStatus });

// The newest SDK parses notifications of 1.0 with its type, and those of 0.3 with a function.
async function readNotification(body) {
  if (version === '1.0') return types.StreamResponse.fromJSON(body);
  return (await import(`${name}/compat/v0_3`)).legacyPushNotificationToV1StreamResponse(body);
}

async function act({ id, call, argument, stop }) {
  try {
    if (call === 'transport') {
      const { protocolName, protocolVersion, constructor } = client.transport;
      const bindings = { _JsonRpcTransport: 'JSONRPC', _RestTransport: 'HTTP+JSON', _GrpcTransport: 'GRPC', GrpcTransport: 'GRPC' };
      return write({ id, value: [protocolName ?? bindings[constructor.name], protocolVersion ?? version] });
    }
    if (call === 'readNotification') return write({ id, value: types.StreamResponse.toJSON(await readNotification(argument)) });
    const options = {};
    const result = argument === undefined ? client[call](options) : client[call](request(call, argument), options);
    if (typeof result?.[Symbol.asyncIterator] !== 'function') {
      return write({ id, value: answer(call, await result) });
    }
    let events = 0;
    for await (const event of result) {
      write({ id, event: answer(call, event) });
      events += 1;
      if (events === stop) break;
    }
    return write({ id, done: true });
  } catch (error) {
    return write({ id, error: describe(error) });
  }
}

write({ id: 0, value: typed });
createInterface({ input: process.stdin }).on('line', (line) => act(JSON.parse(line))).on('close', () => process.exit(0));
