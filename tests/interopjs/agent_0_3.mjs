// An agent on the JavaScript SDK of protocol 0.3: `node agent_0_3.mjs PORT [GRPC_PORT]`.
//
// Serves both bindings, and gRPC at a port of its own. The first word of the message selects a command.

import express from 'express';
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { DefaultRequestHandler, InMemoryTaskStore } from 'a2a-03/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from 'a2a-03/server/express';

const port = Number(process.argv[2]);
const grpcPort = process.argv[3];
const base = `http://127.0.0.1:${port}`;

const text = (value) => ({ kind: 'text', text: value });
const now = () => new Date().toISOString();

class CommandAgent {
  waiting = new Map();

  async execute({ userMessage, taskId, contextId, task }, bus) {
    const input = userMessage.parts.map((part) => part.text ?? '').join(' ');
    const [command, argument] = input.split(' ');
    const agentMessage = (words) => ({
      kind: 'message', messageId: randomUUID(), role: 'agent', parts: [text(words)], taskId, contextId,
    });
    if (command === 'message') {
      const { taskId: none, ...message } = agentMessage('no task was needed');
      bus.publish(message);
      bus.finished();
      return;
    }
    const status = (state, words, final = false) => {
      const message = words ? agentMessage(words) : undefined;
      bus.publish({ kind: 'status-update', taskId, contextId, final, status: { state, message, timestamp: now() } });
      if (final) bus.finished();
    };
    const artifact = (name, parts, append, lastChunk) =>
      bus.publish({ kind: 'artifact-update', taskId, contextId, append, lastChunk, artifact: { artifactId: name, name, parts } });
    if (!task) {
      bus.publish({ kind: 'task', id: taskId, contextId, history: [userMessage], status: { state: 'submitted', timestamp: now() } });
    }
    status('working');
    switch (command) {
      case 'count':
        for (let number = 1; number <= Number(argument); number += 1) {
          artifact('numbers', [text(`${number} `)], number > 1, number === Number(argument));
        }
        break;
      case 'ask':
        return status('input-required', 'Which size?', true);
      case 'fail':
        return status('failed', 'no luck', true);
      case 'wait': {
        const stopped = new AbortController();
        this.waiting.set(taskId, stopped);
        await sleep(60_000, undefined, { signal: stopped.signal }).catch(() => {});
        return status('canceled', undefined, true);
      }
      case 'parts':
        artifact('copy', [...userMessage.parts, { kind: 'data', data: { seen: true } }], false, true);
        break;
      default:
        artifact('echo', [text(input)], false, true);
    }
    return status('completed', undefined, true);
  }

  async cancelTask(taskId, bus) {
    this.waiting.get(taskId)?.abort();
  }
}

const card = {
  name: 'official-js-0.3',
  description: 'An agent on the official JavaScript SDK of 0.3',
  protocolVersion: '0.3.0',
  version: '1.0.0',
  url: `${base}/`,
  preferredTransport: 'JSONRPC',
  additionalInterfaces: [
    { url: `${base}/`, transport: 'JSONRPC' },
    { url: `${base}/rest`, transport: 'HTTP+JSON' },
    ...(grpcPort ? [{ url: `127.0.0.1:${grpcPort}`, transport: 'GRPC' }] : []),
  ],
  supportsAuthenticatedExtendedCard: true,
  capabilities: { streaming: true, pushNotifications: true },
  defaultInputModes: ['text/plain'],
  defaultOutputModes: ['text/plain'],
  skills: [{ id: 'obey', name: 'Obey', description: 'Runs the command in the message', tags: ['test'] }],
};
const extended = async () => ({ ...card, description: 'For authenticated callers' });
const requestHandler = new DefaultRequestHandler(
  card, new InMemoryTaskStore(), new CommandAgent(), undefined, undefined, undefined, extended,
);
const userBuilder = UserBuilder.noAuthentication;

const app = express();
app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
app.use('/rest', restHandler({ requestHandler, userBuilder }));
app.post('/', jsonRpcHandler({ requestHandler, userBuilder }));

if (grpcPort) {
  const { Server, ServerCredentials } = await import('@grpc/grpc-js');
  const { A2AService, grpcService } = await import('a2a-03/server/grpc');
  const server = new Server();
  server.addService(A2AService, grpcService({ requestHandler, userBuilder }));
  await new Promise((resolve, reject) => {
    server.bindAsync(`127.0.0.1:${grpcPort}`, ServerCredentials.createInsecure(), (error) => (error ? reject(error) : resolve()));
  });
}
app.listen(port, '127.0.0.1');
