// An agent on the newest JavaScript SDK: `node agent_newest.mjs PORT [GRPC_PORT]`.
//
// Serves 1.0 and 0.3 over both bindings, and over gRPC at a port of its own. The first word of the message selects a command.

import express from 'express';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { AgentCard, Role, TaskState } from 'a2a-newest';
import { createLegacyAwarePushNotificationSender } from 'a2a-newest/compat/v0_3/server';
import { AgentEvent, DefaultRequestHandler, InMemoryPushNotificationStore, InMemoryTaskStore } from 'a2a-newest/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from 'a2a-newest/server/express';

const port = Number(process.argv[2]);
const grpcPort = process.argv[3];
const base = `http://127.0.0.1:${port}`;

const text = (value) => ({ content: { $case: 'text', value }, filename: '', mediaType: '', metadata: {} });
const now = () => new Date().toISOString();

class CommandAgent {
  waiting = new Map();

  async execute({ userMessage, taskId, contextId, task }, bus) {
    const input = userMessage.parts.map((part) => (part.content?.$case === 'text' ? part.content.value : '')).join(' ');
    const [command, argument] = input.split(' ');
    const agentMessage = (words) => ({
      messageId: randomUUID(), role: Role.ROLE_AGENT, parts: [text(words)], taskId, contextId, extensions: [],
      referenceTaskIds: [], metadata: {},
    });
    if (command === 'message') {
      bus.publish(AgentEvent.message({ ...agentMessage('no task was needed'), taskId: '' }));
      return;
    }
    const status = (state, words) =>
      bus.publish(AgentEvent.statusUpdate({
        taskId, contextId, metadata: {}, status: { state, message: words ? agentMessage(words) : undefined, timestamp: now() },
      }));
    const artifact = (name, parts, append, lastChunk) =>
      bus.publish(AgentEvent.artifactUpdate({
        taskId, contextId, append, lastChunk, metadata: {},
        artifact: { artifactId: name, name, description: '', parts, metadata: {}, extensions: [] },
      }));
    // The SDK requires a stream to begin with the task, in later turns too.
    bus.publish(AgentEvent.task(task ?? {
      id: taskId, contextId, history: [userMessage], artifacts: [], metadata: {},
      status: { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: now() },
    }));
    status(TaskState.TASK_STATE_WORKING);
    switch (command) {
      case 'count':
        for (let number = 1; number <= Number(argument); number += 1) {
          artifact('numbers', [text(`${number} `)], number > 1, number === Number(argument));
        }
        break;
      case 'ask':
        return status(TaskState.TASK_STATE_INPUT_REQUIRED, 'Which size?');
      case 'fail':
        return status(TaskState.TASK_STATE_FAILED, 'no luck');
      case 'wait': {
        const stopped = new AbortController();
        this.waiting.set(taskId, stopped);
        await sleep(60_000, undefined, { signal: stopped.signal }).catch(() => {});
        return status(TaskState.TASK_STATE_CANCELED);
      }
      case 'parts':
        artifact('copy', [...userMessage.parts, { ...text(''), content: { $case: 'data', value: { seen: true } } }], false, true);
        break;
      default:
        artifact('echo', [text(input)], false, true);
    }
    status(TaskState.TASK_STATE_COMPLETED);
  }

  async cancelTask(taskId, bus) {
    this.waiting.get(taskId)?.abort();
  }
}

const interfaces = [['JSONRPC', '1.0', '/'], ['HTTP+JSON', '1.0', ''], ['JSONRPC', '0.3', '/'], ['HTTP+JSON', '0.3', '']];
const document = {
  name: 'official-js',
  description: 'An agent on the official JavaScript SDK',
  version: '1.0.0',
  capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true },
  defaultInputModes: ['text/plain'],
  defaultOutputModes: ['text/plain'],
  skills: [{ id: 'obey', name: 'Obey', description: 'Runs the command in the message', tags: ['test'] }],
  supportedInterfaces: [
    ...interfaces.map(([protocolBinding, protocolVersion, path]) => ({ protocolBinding, protocolVersion, url: base + path })),
    ...(grpcPort ? ['1.0', '0.3'] : []).map((protocolVersion) => ({
      protocolBinding: 'GRPC', protocolVersion, url: `127.0.0.1:${grpcPort}`,
    })),
  ],
};
const card = AgentCard.fromJSON(document);
const extended = AgentCard.fromJSON({ ...document, description: 'For authenticated callers' });
const webhooks = new InMemoryPushNotificationStore();
const requestHandler = new DefaultRequestHandler(
  card, new InMemoryTaskStore(), new CommandAgent(), undefined, webhooks, createLegacyAwarePushNotificationSender(webhooks),
  async () => extended,
);
const userBuilder = UserBuilder.noAuthentication;
const legacyCompat = { enabled: true };

const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler, legacyCompat }));
app.post('/', jsonRpcHandler({ requestHandler, userBuilder, legacyCompat }));
app.use('/', restHandler({ requestHandler, userBuilder, legacyCompat }));

if (grpcPort) {
  const { Server, ServerCredentials } = await import('@grpc/grpc-js');
  const newest = await import('a2a-newest/server/grpc');
  const old = await import('a2a-newest/compat/v0_3/server/grpc');
  const server = new Server();
  server.addService(newest.A2AService, newest.grpcService({ requestHandler, userBuilder }));
  server.addService(old.LegacyA2AService, old.legacyGrpcService({ requestHandler, userBuilder }));
  await new Promise((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${grpcPort}`, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
}
app.listen(port, '127.0.0.1');
